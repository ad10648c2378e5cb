// SPDX-License-Identifier: Apache-2.0
// Definite assignment: which bytes of a memory the steps so far have written. A program from a file may not read bytes
// that it did not write before, because what lies there is of whoever used the memory last.
#pragma once
#include <cstdint>
#include <map>
#include <vector>

namespace hexforge {

// Bytes that a step writes: `run` bytes from `base` on, again at every place of a strided box.
struct WrittenBox {
  struct Axis {
    std::int64_t size, stride;
    bool operator==(const Axis&) const = default;
  };
  std::int64_t base = 0, run = 0;
  std::vector<Axis> axes;

  // The same bytes with as few axes as possible: strides positive and ascending, each larger than what is below it.
  void normalize();
  std::int64_t end() const;  // one past the last byte of a normalized box
};

// The written bytes of one memory. The set only grows, so a program of any number of steps is checked in about the
// time that its steps take to read; where a file scatters its writes so that it would take longer, it is refused.
class WrittenBytes {
 public:
  void write(WrittenBox box);
  // True where all bytes from `begin` to `end` are written.
  bool covers(std::int64_t begin, std::int64_t end);

 private:
  void insert(std::int64_t begin, std::int64_t end);
  bool within_one(std::int64_t begin, std::int64_t end) const;
  void spend(std::int64_t work);

  std::map<std::int64_t, std::int64_t> intervals_;  // begin to end, neither touching nor overlapping
  std::vector<WrittenBox> boxes_;                   // those that are not intervals
  std::int64_t spent_ = 0;
};

}  // namespace hexforge
