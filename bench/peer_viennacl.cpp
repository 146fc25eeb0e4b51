/* SPDX-License-Identifier: Apache-2.0 */
/* ViennaCL as a peer (bench/process.h), on its OpenMP backend, the faster one on a CPU. C++ because
 * ViennaCL is headers of C++; rows it has no operation for are left out. */
#include "peer_serve.hpp"

#include <memory>

#include <viennacl/linalg/inner_prod.hpp>
#include <viennacl/linalg/sum.hpp>
#include <viennacl/matrix.hpp>
#include <viennacl/vector.hpp>

using vector = viennacl::vector<float>;
using matrix = viennacl::matrix<float>;

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

int main()
{
  serve(makers);
}
