/* SPDX-License-Identifier: Apache-2.0 */
/* ViennaCL as a peer (bench/process.h), on its OpenMP backend, the faster one on a CPU. C++ because
 * ViennaCL is headers of C++; rows it has no operation for are left out. */
#include <chrono>
#include <cstdio>
#include <fcntl.h>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include <viennacl/linalg/inner_prod.hpp>
#include <viennacl/linalg/sum.hpp>
#include <viennacl/matrix.hpp>
#include <viennacl/vector.hpp>

using vector = viennacl::vector<float>;
using matrix = viennacl::matrix<float>;
using shape = std::vector<size_t>;

/* A row: what one run does, and how its result gets to the file. */
struct row {
  std::function<void()> run;
  std::function<void(float *)> result;
  long runs = 1;
};

static vector load_vector(const float *values, size_t count)
{
  vector v(count);
  viennacl::fast_copy(values, values + count, v.begin());
  return v;
}

static matrix load_matrix(const float *values, const shape &dims)
{
  matrix m(dims[0], dims[1]);
  std::vector<float> padded(m.internal_size());
  for (size_t i = 0; i < dims[0]; i++)
    for (size_t j = 0; j < dims[1]; j++)
      padded[i * m.internal_size2() + j] = values[i * dims[1] + j];
  viennacl::fast_copy(padded.data(), padded.data() + padded.size(), m);
  return m;
}

static void store_vector(const vector &v, float *to)
{
  viennacl::fast_copy(v.begin(), v.end(), to);
}

static row make_sum(const std::vector<shape> &shapes, const float *in)
{
  auto x = std::make_shared<vector>(load_vector(in, shapes[0][0]));
  auto y = std::make_shared<float>();
  return {[=] { *y = viennacl::linalg::sum(*x); }, [=](float *to) { *to = *y; }};
}

static row make_row_sums(const std::vector<shape> &shapes, const float *in)
{
  auto x = std::make_shared<matrix>(load_matrix(in, shapes[0]));
  auto y = std::make_shared<vector>(shapes[0][0]);
  return {[=] { *y = viennacl::linalg::row_sum(*x); }, [=](float *to) { store_vector(*y, to); }};
}

static row make_column_sums(const std::vector<shape> &shapes, const float *in)
{
  auto x = std::make_shared<matrix>(load_matrix(in, shapes[0]));
  auto y = std::make_shared<vector>(shapes[0][1]);
  return {[=] { *y = viennacl::linalg::column_sum(*x); },
          [=](float *to) { store_vector(*y, to); }};
}

static row make_transpose(const std::vector<shape> &shapes, const float *in)
{
  auto x = std::make_shared<matrix>(load_matrix(in, shapes[0]));
  auto y = std::make_shared<matrix>(shapes[0][1], shapes[0][0]);
  return {[=] { *y = viennacl::trans(*x); },
          [=](float *to) {
            std::vector<float> padded(y->internal_size());
            viennacl::fast_copy(*y, padded.data());
            for (size_t i = 0; i < y->size1(); i++)
              for (size_t j = 0; j < y->size2(); j++)
                to[i * y->size2() + j] = padded[i * y->internal_size2() + j];
          }};
}

static const std::map<std::string, row (*)(const std::vector<shape> &, const float *)> makers = {
  {"sum", make_sum},
  {"row_sums", make_row_sums},
  {"column_sums", make_column_sums},
  {"transpose", make_transpose},
};

/* The time of a run, from a sample that is long enough for the clock. */
static double time_run(row &row)
{
  for (;;) {
    auto start = std::chrono::steady_clock::now();
    for (long i = 0; i < row.runs; i++)
      row.run();
    std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    if (time.count() >= 1e-3 || row.runs >= 100000)
      return time.count() / row.runs;
    row.runs *= 2;
  }
}

/* What a row's line says. */
struct request {
  std::string name, file;
  std::vector<shape> shapes;
  size_t inputs = 0, results = 0; /* elements */
};

static request parse(std::istringstream &words)
{
  request r;
  size_t count, rank;
  words >> r.name >> r.file >> count;
  for (size_t i = 0; i < count; i++) {
    words >> rank;
    shape dims(rank);
    size_t elements = 1;
    for (size_t &dim : dims) {
      words >> dim;
      elements *= dim;
    }
    r.shapes.push_back(dims);
    r.inputs += elements;
  }
  words >> r.results;
  return r;
}

static float *map_file(const request &r)
{
  int file = open(r.file.c_str(), O_RDWR);
  size_t bytes = (r.inputs + r.results) * sizeof(float);
  void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  return memory == MAP_FAILED ? nullptr : static_cast<float *>(memory);
}

int main()
{
  row current;
  float *results = nullptr;
  std::string line, word;
  std::cout << "ok" << std::endl;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    words >> word;
    if (word == "row") {
      request r = parse(words);
      float *memory = makers.count(r.name) ? map_file(r) : nullptr;
      if (memory) {
        current = makers.at(r.name)(r.shapes, memory);
        results = memory + r.inputs;
        current.run();
      }
      std::cout << (memory ? "ok" : "no") << std::endl;
    } else if (word == "run") {
      std::printf("%.9f\n", time_run(current));
      std::fflush(stdout);
    } else {
      current.result(results);
      std::cout << "ok" << std::endl;
    }
  }
}
