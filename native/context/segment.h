// SPDX-License-Identifier: Apache-2.0
// Segments: steps that run in one call, made of what a file says of them, over the file's own arrays.
#pragma once
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "context/arrays.h"
#include "context/json.h"
#include "core/program.h"

namespace hexforge {

struct LoadedSegment {
  struct Read {
    std::string name;
    std::int64_t bytes;
  };
  struct Write {
    std::string name;
    StoredType type;
    std::vector<std::int64_t> dims;
    std::int64_t bytes;
    bool room = false;  // a step reads it again, and may read a little behind it
  };
  // An array that a step was given.
  struct Constant {
    std::size_t step;
    std::string name;
    const std::byte* data;
  };
  std::unique_ptr<Program> program;
  std::int64_t arena_bytes = 0;
  std::vector<Read> reads;
  std::vector<Write> writes;
  std::vector<Constant> constants;
  std::set<std::shared_ptr<const void>> kept;  // what the arrays lie in
  std::set<int> mappings;                      // of files that arrays lie in
};

// The segment that a stage of a program's JSON describes; ContextError, which names the program, where it is none.
LoadedSegment load_segment(const std::string& program, const Json& described, const ReadBytes& read,
                           ArrayCache& arrays);

}  // namespace hexforge
