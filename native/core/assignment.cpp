// SPDX-License-Identifier: Apache-2.0
#include "core/assignment.h"

#include <algorithm>
#include <iterator>
#include <stdexcept>

namespace hexforge {
namespace {

constexpr std::int64_t kMostWork = std::int64_t{1} << 28;  // about a second

void mark(std::vector<std::uint64_t>& bits, std::int64_t begin, std::int64_t end) {
  for (std::int64_t word = begin / 64; word * 64 < end; ++word) {
    const std::int64_t first = std::max<std::int64_t>(begin - word * 64, 0),
                       last = std::min<std::int64_t>(end - word * 64, 64);
    const std::uint64_t upper = last == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << last) - 1;
    bits[static_cast<std::size_t>(word)] |= upper & ~((std::uint64_t{1} << first) - 1);
  }
}

}  // namespace

void WrittenBox::normalize() {
  std::erase_if(axes, [](const Axis& axis) { return axis.size == 1 || axis.stride == 0; });
  for (Axis& axis : axes) {
    if (axis.stride < 0) {
      base += (axis.size - 1) * axis.stride;
      axis.stride = -axis.stride;
    }
  }
  std::sort(axes.begin(), axes.end(), [](const Axis& a, const Axis& b) { return a.stride < b.stride; });
  std::vector<Axis> kept;
  for (const Axis& axis : axes) {
    if (kept.empty() && axis.stride <= run) {
      run += (axis.size - 1) * axis.stride;
    } else if (!kept.empty() && axis.stride == kept.back().size * kept.back().stride) {
      kept.back().size *= axis.size;
    } else {
      kept.push_back(axis);
    }
  }
  axes = std::move(kept);
}

std::int64_t WrittenBox::end() const {
  std::int64_t last = base + run;
  for (const Axis& axis : axes) last += (axis.size - 1) * axis.stride;
  return last;
}

void WrittenBytes::spend(std::int64_t work) {
  spent_ += work;
  if (spent_ > kMostWork) throw std::invalid_argument("the steps write in too many small pieces to be checked");
}

bool WrittenBytes::within_one(std::int64_t begin, std::int64_t end) const {
  const auto after = intervals_.upper_bound(begin);
  return after != intervals_.begin() && std::prev(after)->second >= end;
}

void WrittenBytes::insert(std::int64_t begin, std::int64_t end) {
  auto at = intervals_.upper_bound(begin);
  if (at != intervals_.begin() && std::prev(at)->second >= begin) --at;
  while (at != intervals_.end() && at->first <= end) {
    begin = std::min(begin, at->first);
    end = std::max(end, at->second);
    at = intervals_.erase(at);
  }
  intervals_.emplace(begin, end);
}

void WrittenBytes::write(WrittenBox box) {
  if (box.run <= 0 || std::any_of(box.axes.begin(), box.axes.end(), [](const auto& axis) { return axis.size < 1; }))
    return;
  box.normalize();
  // Boxes side by side on the same grid, as the inputs of a Concat are, grow together until they fill it.
  for (bool grown = true; grown && !box.axes.empty();) {
    if (within_one(box.base, box.end())) return;
    grown = false;
    spend(static_cast<std::int64_t>(boxes_.size()));
    for (auto other = boxes_.begin(); other != boxes_.end(); ++other) {
      if (other->axes != box.axes || other->base > box.base + box.run || box.base > other->base + other->run) continue;
      const std::int64_t last = std::max(box.base + box.run, other->base + other->run);
      box.base = std::min(box.base, other->base);
      box.run = last - box.base;
      boxes_.erase(other);
      box.normalize();
      grown = true;
      break;
    }
  }
  if (box.axes.empty()) {
    insert(box.base, box.base + box.run);
  } else {
    boxes_.push_back(std::move(box));
  }
}

bool WrittenBytes::covers(std::int64_t begin, std::int64_t end) {
  if (begin >= end || within_one(begin, end)) return true;
  // Every byte by itself: phases of a transposed convolution interleave in ways that no single box describes.
  std::erase_if(boxes_, [&](const WrittenBox& box) { return within_one(box.base, box.end()); });
  if (std::none_of(boxes_.begin(), boxes_.end(), [&](const WrittenBox& b) { return b.base < end && b.end() > begin; }))
    return false;
  spend((end - begin) / 16);
  std::vector<std::uint64_t> bits(static_cast<std::size_t>((end - begin + 63) / 64));
  const auto clipped = [&](std::int64_t first, std::int64_t last) {
    first = std::max(first, begin);
    last = std::min(last, end);
    if (first < last) mark(bits, first - begin, last - begin);
  };
  for (auto at = intervals_.begin(); at != intervals_.end(); ++at) {
    spend(1);
    clipped(at->first, at->second);
  }
  for (const WrittenBox& box : boxes_) {
    spend(1);
    if (box.base >= end || box.end() <= begin) continue;
    std::vector<std::int64_t> index(box.axes.size(), 0);
    for (std::int64_t place = box.base;;) {
      spend(1 + box.run / 64);
      clipped(place, place + box.run);
      std::size_t i = 0;
      for (; i < index.size(); ++i) {
        place += box.axes[i].stride;
        if (++index[i] < box.axes[i].size) break;
        place -= box.axes[i].size * box.axes[i].stride;
        index[i] = 0;
      }
      if (i == index.size()) break;
    }
  }
  mark(bits, end - begin, static_cast<std::int64_t>(bits.size()) * 64);
  if (std::any_of(bits.begin(), bits.end(), [](std::uint64_t word) { return word != ~std::uint64_t{0}; })) return false;
  insert(begin, end);
  return true;
}

}  // namespace hexforge
