/* SPDX-License-Identifier: Apache-2.0 */
/* A peer in C++ answers bench/libraries (bench/process.h); its operations are a table of makers. */
#ifndef KILN_BENCH_PEER_SERVE_HPP
#define KILN_BENCH_PEER_SERVE_HPP

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fcntl.h>
#include <functional>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

using shape = std::vector<size_t>;

/* A row: what one run does, and how its result gets to the file. */
struct row {
  std::function<void()> run;
  std::function<void(float *)> result;
  long runs = 1;
  double best = 1e9; /* seconds of the quickest run that warmed up */
};

/* From the inputs' shapes and values, which lie one after the other. */
using maker = row (*)(const std::vector<shape> &, const float *);

static double time_runs(row &row, long runs)
{
  auto start = std::chrono::steady_clock::now();
  for (long i = 0; i < runs; i++)
    row.run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/* Until a run is about as quick as the quickest so far, as in peers.py. */
static void warm_up(row &row)
{
  bool slow = true;
  for (double spent = 0; spent < (slow ? 5e-2 : 5e-3);) {
    double time = time_runs(row, 1);
    slow = time > 1.1 * row.best;
    row.best = std::min(row.best, time);
    spent += time;
  }
}

/* The time of a run, from a sample that is long enough for the clock. */
static double time_run(row &row)
{
  for (;;) {
    warm_up(row);
    double time = time_runs(row, row.runs);
    if (time >= 1e-3 || row.runs >= 100000)
      return time / row.runs;
    row.runs *= 2;
  }
}

/* What a row's line says. */
struct request {
  std::string name, file;
  std::vector<shape> shapes;
  bool floats = true;             /* all inputs are f32 */
  size_t inputs = 0, results = 0; /* elements */
};

static request parse(std::istringstream &words)
{
  request r;
  std::string type;
  size_t count, rank;
  words >> r.name >> r.file >> count;
  for (size_t i = 0; i < count; i++) {
    words >> type >> rank;
    shape dims(rank);
    size_t elements = 1;
    for (size_t &dim : dims) {
      words >> dim;
      elements *= dim;
    }
    r.shapes.push_back(dims);
    r.inputs += elements;
    r.floats = r.floats && type == "f32";
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

static void serve(const std::map<std::string, maker> &makers)
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
      float *memory = r.floats && makers.count(r.name) ? map_file(r) : nullptr;
      if (memory) {
        current = makers.at(r.name)(r.shapes, memory);
        results = memory + r.inputs;
        current.run();
      }
      std::cout << (memory ? "ok -" : "no") << std::endl;
    } else if (word == "run") {
      std::printf("%.9f\n", time_run(current));
      std::fflush(stdout);
    } else if (word == "check") {
      std::cout << "no" << std::endl;
    } else {
      current.run();
      current.result(results);
      std::cout << "ok" << std::endl;
    }
  }
}

#endif
