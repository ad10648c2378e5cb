// SPDX-License-Identifier: Apache-2.0
// Runs the first graph of a context at one instruction set: run_context CONTEXT INPUTS OUTPUTS LEVEL. A file of inputs
// has the bytes of all of them, one after the other, and so has that of outputs. tools/windows.py runs it on another
// system.
#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "context/compiled_context.h"
#include "core/level.h"

namespace {

std::vector<hexforge::Buffer> buffers(std::vector<char>& bytes, const std::vector<hexforge::TensorInfo>& tensors) {
  std::vector<hexforge::Buffer> all;
  std::size_t at = 0;
  for (const auto& tensor : tensors) at += static_cast<std::size_t>(tensor.bytes);
  bytes.resize(at);
  at = 0;
  for (const auto& tensor : tensors) {
    all.push_back({bytes.data() + at, tensor.bytes});
    at += static_cast<std::size_t>(tensor.bytes);
  }
  return all;
}

int run(const std::string& context, const char* inputs, const char* outputs, const std::string& level) {
  for (const hexforge::Level each : hexforge::kLevels) {
    if (hexforge::name(each) != level) continue;
    if (!hexforge::has_level(each)) {
      std::printf("%s: not here\n", level.c_str());
      return 0;
    }
    hexforge::set_level(each);
  }
  const auto opened = hexforge::CompiledContext::open_file(context);
  const auto graph = opened->graph(opened->graphs().front().name);
  std::ifstream source(inputs, std::ios::binary);
  std::vector<char> given(std::istreambuf_iterator<char>(source), {}), results;
  const auto from = buffers(given, graph->info().inputs), to = buffers(results, graph->info().outputs);
  graph->run(from, to);
  std::ofstream(outputs, std::ios::binary).write(results.data(), static_cast<std::streamsize>(results.size()));
  std::printf("%s: ran\n", level.c_str());
  return 0;
}

}  // namespace

int main(int count, char** words) {
  if (count != 5) {
    std::fprintf(stderr, "run_context CONTEXT INPUTS OUTPUTS LEVEL\n");
    return 2;
  }
  try {
    return run(words[1], words[2], words[3], words[4]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
