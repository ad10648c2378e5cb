// SPDX-License-Identifier: Apache-2.0
// A compiled graph: tensors, and steps run one after the other over them.
#pragma once
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/assignment.h"
#include "core/parallel.h"
#include "core/schema.h"

namespace hexforge {

// The product of sizes, strides and element bytes; throws where no memory could be that large, so that sums of a few
// products do not overflow either. A 0 among them hides nothing: products of only some of them do not overflow.
std::int64_t times(std::initializer_list<std::int64_t> factors);

// Where a tensor's bytes are.
struct Tensor {
  enum class Place { arena, constant, input, output } place = Place::arena;
  std::int64_t offset = 0;  // in the arena, or the index of the input or output
  std::int64_t bytes = 0;
  const void* constant = nullptr;
  std::int64_t room = 0;  // bytes behind it that are there to be read; of the arena's tensors the program knows
  // What the step that is being made said of it: its first so many bytes (require_bytes), or the part that it writes.
  mutable std::int64_t touched = 0;
  mutable std::optional<WrittenBox> part = std::nullopt;
};

// What one run of a program works with.
struct Context {
  char* arena;
  std::span<const void* const> inputs;
  std::span<void* const> outputs;
  int threads;
};

// A step's description, from Python: integers, reals and constant arrays by name.
class Attributes {
 public:
  std::map<std::string, std::vector<std::int64_t>> integers;
  std::map<std::string, std::vector<double>> reals;
  struct Constant {
    const void* data;
    std::int64_t bytes;
  };
  std::map<std::string, Constant> constants;

  std::int64_t integer(const std::string& name) const { return list(name, 1)[0]; }
  std::int64_t integer(const std::string& name, std::int64_t otherwise) const {
    return integers.contains(name) ? integer(name) : otherwise;
  }
  // An integer such that sums of two stay within 32 bits: zero points, bounds of a data type.
  std::int32_t small(const std::string& name) const;
  std::int32_t small(const std::string& name, std::int32_t otherwise) const {
    return integers.contains(name) ? small(name) : otherwise;
  }
  const std::vector<std::int64_t>& list(const std::string& name, std::size_t size) const;
  const std::vector<std::int64_t>& list(const std::string& name) const;
  double real(const std::string& name) const;
  double real(const std::string& name, double otherwise) const { return reals.contains(name) ? real(name) : otherwise; }
  bool has(const std::string& name) const {
    asked_.insert(name);
    return constants.contains(name);
  }
  // Throws where what is given is not what the schema of the kind says: a name, a type, a number of values.
  void require(const std::string& kind, const Schema& schema) const;
  // Throws where a zero point or a bound is none that a tensor of 16 bits could have: differences of two fit 32 bits.
  void require_small_levels() const;
  // Throws where the step was given an array that it did not ask for: a table left out would be a wrong result.
  void require_all_asked(const std::string& kind) const;
  // The array, checked to hold at least `count` elements of T.
  template <class T>
  const T* constant(const std::string& name, std::int64_t count) const {
    asked_.insert(name);
    const auto found = constants.find(name);
    if (found == constants.end()) throw std::invalid_argument("step lacks constant " + name);
    if (found->second.bytes < times({count, static_cast<std::int64_t>(sizeof(T))})) {
      throw std::invalid_argument("constant " + name + " is too short");
    }
    require_aligned(found->second.data, alignof(T), name);
    return static_cast<const T*>(found->second.data);
  }

 private:
  static void require_aligned(const void* data, std::size_t alignment, const std::string& name);
  mutable std::set<std::string> asked_;
};

class Program;

// Pointers to a step's tensors for one run.
class Operands {
 public:
  Operands(const Program& program, const Context& context, const std::vector<int>& ins, const std::vector<int>& outs)
      : program_(program), context_(context), ins_(ins), outs_(outs) {}
  template <class T>
  const T* in(std::size_t index = 0) const {
    return static_cast<const T*>(locate(ins_.at(index)));
  }
  template <class T>
  T* out(std::size_t index = 0) const {
    return static_cast<T*>(const_cast<void*>(locate(outs_.at(index))));
  }
  int threads() const { return context_.threads; }

 private:
  const void* locate(int tensor) const;
  const Program& program_;
  const Context& context_;
  const std::vector<int>& ins_;
  const std::vector<int>& outs_;
};

using Run = std::function<void(const Operands&)>;
// Makes the function of a step; checks that the tensors are large enough for what the attributes say.
using Factory = std::function<Run(const Attributes&, std::span<const Tensor> ins, std::span<const Tensor> outs)>;

// One of the steps that there are: what it is given, and what makes its function.
struct StepKind {
  Schema schema;
  Factory factory;
};
void register_step(const std::string& kind, Schema schema, Factory factory);
const std::map<std::string, StepKind>& step_kinds();

// Working memory of runs, shared by all programs: as many arenas as ran at the same time, each as large as was needed.
class Arenas {
 public:
  struct Free {
    void operator()(char* memory) const { std::free(memory); }
  };
  struct Arena {
    std::unique_ptr<char[], Free> memory;
    std::int64_t bytes = 0;
  };
  static std::shared_ptr<Arenas> shared();  // the one there is; it ends with the last program
  Arena take(std::int64_t bytes);
  void give(Arena arena);

 private:
  std::vector<Arena> free_;  // guarded by fork_mutex()
};

class Program {
 public:
  explicit Program(std::int64_t arena_bytes);
  int tensor(Tensor tensor);
  void step(const std::string& kind, std::vector<int> ins, std::vector<int> outs, const Attributes& attributes);
  // Throws where a step reads what no step before it wrote, or an output is not written whole: call it after the last
  // step of a program from a file. Memory is not cleared between runs, so such a program would show others' data.
  void require_assigned();
  // `pause` is called between two steps, where some time has passed since the last call; it may throw to end the run.
  // Only the first `count` steps are run, if there are more.
  void run(std::span<const void* const> inputs, std::span<void* const> outputs, int threads, Spinning spinning,
           const std::function<void()>& pause = {}, std::size_t count = SIZE_MAX) const;
  // The seconds that each step takes on one thread, and would take at least on `threads` of them with a core each.
  struct StepTime {
    double alone, shared;
    int loops;  // how many of its loops would be split
  };
  std::vector<StepTime> time_steps(std::span<const void* const> inputs, std::span<void* const> outputs,
                                   int threads) const;
  // Outputs that are an input with something put in, where no other step reads that input: by the indices of both.
  std::map<std::int64_t, std::int64_t> states() const;
  // Of each output the number of steps after which it is whole.
  std::vector<std::size_t> last_steps() const;
  std::vector<std::string> kinds_of_steps() const;  // in their order
  const Tensor& at(int index) const { return tensors_.at(static_cast<std::size_t>(index)); }
  std::size_t steps() const { return steps_.size(); }
  // True once a run had a number past what float16 holds.
  bool overflowed() const { return overflowed_.load(std::memory_order_relaxed); }

 private:
  struct Step {
    std::string kind;
    std::vector<int> ins, outs;
    Run run;
  };
  std::int64_t arena_bytes_;
  std::vector<Tensor> tensors_;
  std::vector<Step> steps_;
  std::shared_ptr<Arenas> arenas_;
  mutable std::atomic<bool> overflowed_{false};

  WrittenBytes* memory_of(const Tensor& tensor);
  void require_room(const std::string& kind, std::int64_t wanted, const Tensor& tensor) const;
  void follow(const std::string& kind, std::span<const Tensor> ins, std::span<const Tensor> outs);
  WrittenBytes written_arena_;
  std::map<std::int64_t, WrittenBytes> written_outputs_;  // by the output's index
  std::string fault_;                                     // the first read of what was not written
};

// Copies an attribute of three integers, one for each axis of a window.
void copy3(const Attributes& at, const char* name, std::int64_t* to);

// Says that a step writes only this part of an output, in bytes from the tensor's start.
void writes_part(const Tensor& tensor, WrittenBox part);

// Throws where a tensor holds fewer bytes than a step will touch.
void require_bytes(const Tensor& tensor, std::int64_t bytes, const char* what);

}  // namespace hexforge
