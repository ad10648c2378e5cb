// SPDX-License-Identifier: Apache-2.0
#include "core/program.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif
#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "core/float_overflow.h"

namespace hexforge {
namespace {
constexpr std::int64_t kAlignment = 64;
constexpr std::int64_t kSlack = 256;  // behind the arena, where kernels may read and never write
static_assert(kSlack >= kRoom);

std::map<std::string, StepKind>& kinds() {
  static std::map<std::string, StepKind> table;
  return table;
}
}  // namespace

std::int64_t times(std::initializer_list<std::int64_t> factors) {
  constexpr std::int64_t kMost = std::int64_t{1} << 56;
  std::int64_t product = 1, size = 1;
  for (std::int64_t factor : factors) {
    if (factor < -kMost || factor > kMost ||
        __builtin_mul_overflow(size, std::max<std::int64_t>(1, std::abs(factor)), &size) || size > kMost) {
      throw std::invalid_argument("sizes are too large");
    }
    product *= factor;
  }
  return product;
}

const std::vector<std::int64_t>& Attributes::list(const std::string& name) const {
  const auto found = integers.find(name);
  if (found == integers.end()) throw std::invalid_argument("step lacks " + name);
  return found->second;
}

const std::vector<std::int64_t>& Attributes::list(const std::string& name, std::size_t size) const {
  const auto& found = list(name);
  if (found.size() != size) throw std::invalid_argument(name + " has the wrong number of values");
  return found;
}

double Attributes::real(const std::string& name) const {
  const auto found = reals.find(name);
  if (found == reals.end() || found->second.empty()) throw std::invalid_argument("step lacks " + name);
  return found->second[0];
}

std::int32_t Attributes::small(const std::string& name) const {
  const std::int64_t value = integer(name);
  constexpr std::int64_t kMost = (std::int64_t{1} << 30) - 1;
  if (value < -kMost || value > kMost) throw std::invalid_argument(name + " is not a number that a tensor can hold");
  return static_cast<std::int32_t>(value);
}

void Attributes::require_aligned(const void* data, std::size_t alignment, const std::string& name) {
  if (reinterpret_cast<std::uintptr_t>(data) % alignment != 0) {
    throw std::invalid_argument("constant " + name + " does not lie where its data type may");
  }
}

void Attributes::require_small_levels() const {
  constexpr std::int64_t kMost = std::int64_t{1} << 20;
  for (const char* name : {"zero_a", "zero_b", "zero_point", "low", "high", "lowest", "grid_zero", "residual_zero",
                           "sum_zero", "sum_low", "sum_high"}) {
    const auto found = integers.find(name);
    if (found == integers.end()) continue;
    for (std::int64_t value : found->second) {
      if (value < -kMost || value > kMost) throw std::invalid_argument(std::string(name) + " is out of range");
    }
  }
}

void Attributes::require_all_asked(const std::string& kind) const {
  for (const auto& [name, constant] : constants) {
    if (!asked_.contains(name)) throw std::invalid_argument(kind + " takes no constant " + name);
  }
}

const void* Operands::locate(int index) const {
  const Tensor& tensor = program_.at(index);
  switch (tensor.place) {
    case Tensor::Place::arena: return context_.arena + tensor.offset;
    case Tensor::Place::constant: return tensor.constant;
    case Tensor::Place::input: return context_.inputs[static_cast<std::size_t>(tensor.offset)];
    default: return context_.outputs[static_cast<std::size_t>(tensor.offset)];
  }
}

void register_step(const std::string& kind, Schema schema, Factory factory) {
  kinds().insert_or_assign(kind, StepKind{std::move(schema), std::move(factory)});
}

const std::map<std::string, StepKind>& step_kinds() { return kinds(); }

Program::Program(std::int64_t arena_bytes) : arena_bytes_(arena_bytes), arenas_(Arenas::shared()) {
  if (arena_bytes < 0) throw std::invalid_argument("an arena cannot have fewer than 0 bytes");
  times({arena_bytes});
}

int Program::tensor(Tensor tensor) {
  if (tensor.bytes < 0 || tensor.room < 0) throw std::invalid_argument("a tensor cannot have fewer than 0 bytes");
  if (tensor.place == Tensor::Place::constant && reinterpret_cast<std::uintptr_t>(tensor.constant) % 8) {
    throw std::invalid_argument("a constant starts at a multiple of 8 bytes");
  }
  if (tensor.place == Tensor::Place::arena &&
      (tensor.offset < 0 || tensor.offset > arena_bytes_ || tensor.bytes > arena_bytes_ - tensor.offset)) {
    throw std::invalid_argument("tensor lies outside the arena");
  }
  // The arena begins at a multiple of 64 bytes, and so does every tensor in it: of whatever type, its elements are
  // aligned.
  if (tensor.place == Tensor::Place::arena && tensor.offset % kAlignment != 0) {
    throw std::invalid_argument("tensor does not begin at a multiple of 64 bytes of the arena");
  }
  tensors_.push_back(tensor);
  return static_cast<int>(tensors_.size()) - 1;
}

void Program::step(const std::string& kind, std::vector<int> ins, std::vector<int> outs, const Attributes& attributes) {
  const auto found = kinds().find(kind);
  if (found == kinds().end()) throw std::invalid_argument("no step is named " + kind);
  const auto& [schema, factory] = found->second;
  const auto outside = [](std::size_t count, int least, int most) {
    return count < static_cast<std::size_t>(least) || count > static_cast<std::size_t>(most);
  };
  if (outside(ins.size(), schema.least_ins, schema.most_ins) ||
      outside(outs.size(), schema.least_outs, schema.most_outs)) {
    throw std::invalid_argument(kind + ": wrong number of operands");
  }
  attributes.require(kind, schema);
  std::vector<Tensor> in_tensors, out_tensors;
  for (int index : ins) in_tensors.push_back(at(index));
  for (int index : outs) {
    out_tensors.push_back(at(index));
    const Tensor::Place place = out_tensors.back().place;
    if (place == Tensor::Place::constant || place == Tensor::Place::input) {
      throw std::invalid_argument(kind + ": a step cannot write a constant or an input");
    }
  }
  for (std::size_t i = 0; i < in_tensors.size(); ++i) {
    if (static_cast<int>(i) < schema.exact_from) require_room(kind, schema.room, in_tensors[i]);
  }
  attributes.require_small_levels();
  Run run = factory(attributes, in_tensors, out_tensors);
  attributes.require_all_asked(kind);
  follow(kind, in_tensors, out_tensors);
  steps_.push_back({kind, std::move(ins), std::move(outs), std::move(run)});
}

std::map<std::int64_t, std::int64_t> Program::states() const {
  std::map<int, int> reads;
  for (const Step& step : steps_) {
    for (int tensor : step.ins) ++reads[tensor];
  }
  std::map<std::int64_t, std::int64_t> made;
  for (const Step& step : steps_) {
    if (!step.kind.starts_with("scatter_") || step.ins.empty() || step.outs.empty()) continue;
    const Tensor &source = at(step.ins[0]), &target = at(step.outs[0]);
    const bool borders = source.place == Tensor::Place::input && target.place == Tensor::Place::output;
    if (borders && reads[step.ins[0]] == 1) made[target.offset] = source.offset;
  }
  return made;
}

std::vector<std::size_t> Program::last_steps() const {
  std::vector<std::size_t> last;
  const auto whole_after = [&](const Tensor& tensor, std::size_t count) {
    if (tensor.place != Tensor::Place::output) return;
    const auto index = static_cast<std::size_t>(tensor.offset);
    if (last.size() <= index) last.resize(index + 1);
    last[index] = std::max(last[index], count);
  };
  for (const Tensor& tensor : tensors_) whole_after(tensor, 0);
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    for (int tensor : steps_[i].outs) whole_after(at(tensor), i + 1);
  }
  return last;
}

std::vector<std::string> Program::kinds_of_steps() const {
  std::vector<std::string> all;
  all.reserve(steps_.size());
  for (const Step& step : steps_) all.push_back(step.kind);
  return all;
}

WrittenBytes* Program::memory_of(const Tensor& tensor) {
  if (tensor.place == Tensor::Place::arena) return &written_arena_;
  return tensor.place == Tensor::Place::output ? &written_outputs_[tensor.offset] : nullptr;
}

// What a kernel may read behind a tensor must be there: behind the arena it is, behind a caller's array it need not be.
void Program::require_room(const std::string& kind, std::int64_t wanted, const Tensor& tensor) const {
  const std::int64_t room =
      tensor.place == Tensor::Place::arena ? arena_bytes_ + kSlack - tensor.offset - tensor.bytes : tensor.room;
  if (room < wanted) {
    const char* what = tensor.place == Tensor::Place::input    ? "an input"
                       : tensor.place == Tensor::Place::output ? "an output"
                                                               : "a constant";
    throw std::invalid_argument(kind + " reads up to " + std::to_string(wanted) + " bytes behind " + what +
                                " that has " + std::to_string(room) + " there; copy it into the arena first");
  }
}

// Notes what a step reads and writes; throws where it writes what it reads, or twice at once.
void Program::follow(const std::string& kind, std::span<const Tensor> ins, std::span<const Tensor> outs) {
  const auto start = [](const Tensor& t) { return t.place == Tensor::Place::arena ? t.offset : 0; };
  for (std::size_t i = 0; i < outs.size(); ++i) {
    const auto apart = [&](const Tensor& other) {
      if (other.place != outs[i].place || (other.place == Tensor::Place::output && other.offset != outs[i].offset))
        return true;
      return start(other) >= start(outs[i]) + outs[i].bytes || start(outs[i]) >= start(other) + other.bytes;
    };
    if (!std::all_of(ins.begin(), ins.end(), apart) ||
        !std::all_of(outs.begin() + static_cast<std::ptrdiff_t>(i) + 1, outs.end(), apart)) {
      throw std::invalid_argument(kind + ": a tensor that it writes overlaps another of its tensors");
    }
  }
  for (const Tensor& in : ins) {
    WrittenBytes* memory = memory_of(in);
    if (memory && fault_.empty() && !memory->covers(start(in), start(in) + in.bytes)) {
      fault_ = "step " + std::to_string(steps_.size()) + " (" + kind + ") reads bytes that no step before it wrote";
    }
  }
  for (const Tensor& out : outs) {
    WrittenBox box = out.part ? std::move(*out.part) : WrittenBox{0, out.touched, {}};
    box.base += start(out);
    memory_of(out)->write(std::move(box));
  }
}

void Program::require_assigned() {
  if (!fault_.empty()) throw std::invalid_argument(fault_);
  for (const Tensor& tensor : tensors_) {
    if (tensor.place == Tensor::Place::output && !memory_of(tensor)->covers(0, tensor.bytes)) {
      throw std::invalid_argument("output " + std::to_string(tensor.offset) + " is not written whole");
    }
  }
  written_arena_ = {};
  written_outputs_ = {};
}

void Program::run(std::span<const void* const> inputs, std::span<void* const> outputs, int threads, Spinning spinning,
                  const std::function<void()>& pause, std::size_t count) const {
  const Crew crew(spinning);
  using Clock = std::chrono::steady_clock;
  constexpr auto kPatience = std::chrono::milliseconds(20);
  Clock::time_point asked = pause ? Clock::now() : Clock::time_point{};
  Arenas::Arena arena = arenas_->take(arena_bytes_ + kSlack + 64);
  char* start = arena.memory.get();
  const Context context{start + (64 - reinterpret_cast<std::uintptr_t>(start) % 64) % 64, inputs, outputs, threads};
  const bool before = overflow_seen();
  if (before) clear_overflow();
  for (const Step& step : std::span(steps_).first(std::min(count, steps_.size()))) {
    step.run(Operands(*this, context, step.ins, step.outs));
    if (!pause) continue;
    if (const auto now = Clock::now(); now - asked > kPatience) {
      pause();
      asked = Clock::now();
    }
  }
  if (overflow_seen()) overflowed_.store(true, std::memory_order_relaxed);
  if (before) {
    raise_overflow();
  } else {
    clear_overflow();
  }
  arenas_->give(std::move(arena));
}

std::vector<Program::StepTime> Program::time_steps(std::span<const void* const> inputs, std::span<void* const> outputs,
                                                   int threads) const {
  using Clock = std::chrono::steady_clock;
  Arenas::Arena arena = arenas_->take(arena_bytes_ + kSlack + 64);
  char* start = arena.memory.get();
  const Context context{start + (64 - reinterpret_cast<std::uintptr_t>(start) % 64) % 64, inputs, outputs, threads};
  std::vector<StepTime> times;
  for (const Step& step : steps_) {
    const TimedLoops timed;
    const Clock::time_point begin = Clock::now();
    step.run(Operands(*this, context, step.ins, step.outs));
    const double rest = std::chrono::duration<double>(Clock::now() - begin).count() - timed.passed;
    times.push_back({rest + timed.all, rest + timed.longest, timed.loops});
  }
  arenas_->give(std::move(arena));
  return times;
}

std::shared_ptr<Arenas> Arenas::shared() {
  static std::weak_ptr<Arenas> kept;
  std::lock_guard lock(fork_mutex());
  std::shared_ptr<Arenas> found = kept.lock();
  if (!found) kept = found = std::make_shared<Arenas>();
  return found;
}

namespace {
// Memory in large pages where it fills some and the system gives them.
std::unique_ptr<char[], Arenas::Free> fresh(std::int64_t bytes) {
  const std::size_t size = static_cast<std::size_t>(bytes);
  char* memory = nullptr;
#if defined(__linux__)
  constexpr std::size_t kPage = std::size_t{1} << 21;
  if (size >= kPage && size <= SIZE_MAX - kPage) {
    const std::size_t whole = (size + kPage - 1) / kPage * kPage;
    memory = static_cast<char*>(std::aligned_alloc(kPage, whole));
    if (memory) madvise(memory, whole, MADV_HUGEPAGE);
  }
#endif
  if (!memory) memory = static_cast<char*>(std::malloc(size));
  if (!memory) throw std::bad_alloc();
  return std::unique_ptr<char[], Arenas::Free>(memory);
}
}  // namespace

Arenas::Arena Arenas::take(std::int64_t bytes) {
  {
    std::lock_guard lock(fork_mutex());
    if (!free_.empty()) {
      // the smallest that is large enough; where none is, the largest goes and a larger one takes its place
      auto found = free_.end();
      for (auto at = free_.begin(); at != free_.end(); ++at) {
        if (at->bytes >= bytes && (found == free_.end() || at->bytes < found->bytes)) found = at;
      }
      const bool fits = found != free_.end();
      if (!fits) {
        found = std::max_element(free_.begin(), free_.end(),
                                 [](const Arena& a, const Arena& b) { return a.bytes < b.bytes; });
      }
      Arena arena = std::move(*found);
      free_.erase(found);
      if (fits) return arena;
    }
  }
  return {fresh(bytes), bytes};
}

void Arenas::give(Arena arena) {
  std::lock_guard lock(fork_mutex());
  free_.push_back(std::move(arena));
}

void copy3(const Attributes& at, const char* name, std::int64_t* to) { std::copy_n(at.list(name, 3).begin(), 3, to); }

void writes_part(const Tensor& tensor, WrittenBox part) { tensor.part = std::move(part); }

void require_bytes(const Tensor& tensor, std::int64_t bytes, const char* what) {
  if (tensor.bytes < bytes) {
    throw std::invalid_argument(std::string(what) + ": the tensor has " + std::to_string(tensor.bytes) + " bytes, " +
                                std::to_string(bytes) + " are needed");
  }
  tensor.touched = std::max(tensor.touched, bytes);
}

}  // namespace hexforge
