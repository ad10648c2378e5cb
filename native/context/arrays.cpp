// SPDX-License-Identifier: Apache-2.0
#include "context/arrays.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "context/error.h"
#include "context/inflate.h"
#include "core/aligned_memory.h"
#include "core/mapping.h"
#include "core/program.h"
#include "core/schema.h"
#include "kernels/halves.h"

namespace hexforge {
namespace {

using Numbers = std::vector<std::int64_t>;
constexpr std::int64_t kMostValues = 16, kLeastTable = 4096, kTable = 1 << 16;
constexpr std::size_t kLine = 64;

std::int64_t size_of(Bytes bytes) { return static_cast<std::int64_t>(bytes.size()); }

// One of the forms: whether so many bytes can hold so many elements, and how these are made of them.
struct FileForm {
  const char* word;
  bool (*fits)(const Numbers& data, std::int64_t size, StoredType type, std::int64_t count);
  void (*fill)(const Numbers& data, Bytes raw, StoredType type, std::byte* whole, std::int64_t count);
};

bool is_integer(StoredType type) { return type.kind == 'i' || type.kind == 'u'; }

template <class T>
T* as(std::byte* bytes) {
  return reinterpret_cast<T*>(bytes);
}

// What a byte of two 4-bit numbers stands for.
template <class T>
void look_up(const Numbers& values, Bytes raw, std::byte* whole, std::int64_t count) {
  std::array<T, kMostValues> table;
  for (std::size_t i = 0; i < table.size(); ++i) table[i] = static_cast<T>(values[i % values.size()]);
  T* out = as<T>(whole);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto pair = static_cast<unsigned>(raw[static_cast<std::size_t>(i / 2)]);
    out[i] = table[i % 2 == 0 ? pair & 15 : pair >> 4];
  }
}

template <class T>
void add_up(Bytes raw, std::byte* whole, std::int64_t count) {
  inflate(raw, {whole, static_cast<std::size_t>(count) * sizeof(T)});
  T* out = as<T>(whole);
  for (std::int64_t i = 1; i < count; ++i) out[i] = static_cast<T>(out[i] + out[i - 1]);
}

bool holds(StoredType type, std::int64_t value) {
  if (type.bytes == 8) return type.kind == 'i' || value >= 0;
  const std::int64_t span = std::int64_t{1} << (8 * type.bytes);
  return type.kind == 'u' ? value >= 0 && value < span : value >= -span / 2 && value < span / 2;
}

constexpr std::array<FileForm, 4> kForms{{
    {"half",  // floats that are all float16 numbers: two bytes for four
     [](const Numbers&, std::int64_t size, StoredType type, std::int64_t count) {
       return type == StoredType{'f', 4} && size == 2 * count;
     },
     [](const Numbers&, Bytes raw, StoredType, std::byte* whole, std::int64_t count) {
       widen_halves(reinterpret_cast<const std::uint16_t*>(raw.data()), as<float>(whole),
                    static_cast<std::size_t>(count));
     }},
    {"values",  // integers of at most 16 different values: 4 bits each, the first in a byte's low bits
     [](const Numbers& data, std::int64_t size, StoredType type, std::int64_t count) {
       return is_integer(type) && !data.empty() && static_cast<std::int64_t>(data.size()) <= kMostValues &&
              size == (count + 1) / 2 &&
              std::all_of(data.begin(), data.end(), [&](std::int64_t value) { return holds(type, value); });
     },
     [](const Numbers& data, Bytes raw, StoredType type, std::byte* whole, std::int64_t count) {
       switch (type.bytes) {
         case 1: return look_up<std::uint8_t>(data, raw, whole, count);
         case 2: return look_up<std::uint16_t>(data, raw, whole, count);
         case 4: return look_up<std::uint32_t>(data, raw, whole, count);
         default: return look_up<std::uint64_t>(data, raw, whole, count);
       }
     }},
    {"steps",  // tables that are looked up by 16 bits: the differences from each entry to the next, compressed
     [](const Numbers&, std::int64_t size, StoredType type, std::int64_t count) {
       return is_integer(type) && type.bytes <= 2 && count >= kTable && count <= kTable + 64 && size >= kLeastTable;
     },
     [](const Numbers&, Bytes raw, StoredType type, std::byte* whole, std::int64_t count) {
       return type.bytes == 1 ? add_up<std::uint8_t>(raw, whole, count) : add_up<std::uint16_t>(raw, whole, count);
     }},
    {"bytes",  // integers of 16 bits that lie close together: bytes, and the least of them
     [](const Numbers& data, std::int64_t size, StoredType type, std::int64_t count) {
       return data.size() == 1 && holds({'i', 2}, data[0]) &&
              (type == StoredType{'i', 2} || type == StoredType{'i', 4}) && size == count;
     },
     [](const Numbers& data, Bytes raw, StoredType type, std::byte* whole, std::int64_t count) {
       const auto least = static_cast<std::uint32_t>(data[0] & 0xFFFF);
       for (std::int64_t i = 0; i < count; ++i) {
         const std::uint32_t value = (static_cast<std::uint32_t>(raw[static_cast<std::size_t>(i)]) + least) & 0xFFFF;
         if (type.bytes == 4) {
           as<std::uint32_t>(whole)[i] = value;
         } else {
           as<std::uint16_t>(whole)[i] = static_cast<std::uint16_t>(value);
         }
       }
     }},
}};

struct WholeArray {
  WholeArray(std::shared_ptr<std::byte> memory, std::shared_ptr<const void> source)
      : memory(std::move(memory)), source(std::move(source)) {}
  std::shared_ptr<std::byte> memory;
  std::shared_ptr<const void> source;
};

std::shared_ptr<std::byte> memory(std::size_t bytes) {
  auto* start = static_cast<std::byte*>(allocate_aligned(kLine, (bytes / kLine + 1) * kLine));
  if (!start) throw ContextError(ContextError::Kind::memory, "a program's arrays cannot be held in memory");
  return {start, free_aligned};
}

}  // namespace

StoredType stored_type(std::string_view name) {
  struct Spelling {
    std::string_view plain, code;
    StoredType type;
  };
  static constexpr std::array<Spelling, 12> kSpellings{{{"bool", "|b1", {'b', 1}},
                                                        {"int8", "|i1", {'i', 1}},
                                                        {"uint8", "|u1", {'u', 1}},
                                                        {"int16", "<i2", {'i', 2}},
                                                        {"uint16", "<u2", {'u', 2}},
                                                        {"int32", "<i4", {'i', 4}},
                                                        {"uint32", "<u4", {'u', 4}},
                                                        {"int64", "<i8", {'i', 8}},
                                                        {"uint64", "<u8", {'u', 8}},
                                                        {"float16", "<f2", {'f', 2}},
                                                        {"float32", "<f4", {'f', 4}},
                                                        {"float64", "<f8", {'f', 8}}}};
  for (const Spelling& spelling : kSpellings) {
    if (name == spelling.plain || name == spelling.code) return spelling.type;
  }
  malformed("no tensor has the type '" + std::string(name) + "'");
}

StoredArray ArrayCache::read(const Json& described, const ReadBytes& read) {
  const StoredType type = stored_type(described["dtype"].text());
  std::int64_t count = 1;
  for (std::int64_t dim : described["shape"].integers()) count = times({count, dim});
  const std::int64_t bytes = times({count, type.bytes});
  const Numbers place = described["at"].integers();
  if (place.size() != 2) malformed("an array lies at an offset with a size");
  const KeptBytes source = read(place[0], place[1]);
  const Bytes raw = source.bytes;
  const int mapping = mapping_of(raw.data());
  const FileForm* form = nullptr;
  for (const FileForm& known : kForms) {
    if (!described.find(known.word)) continue;
    if (form) malformed("an array has one form, not two");
    form = &known;
  }
  if (!form) {
    if (bytes != size_of(raw)) malformed("an array has not as many bytes as its shape says");
    return {raw.data(), bytes, source.room, source.owner, type, mapping};
  }
  const Json& given = described[form->word];
  const Numbers data =
      given.is_integer() ? Numbers{given.integer()} : given.integers(std::numeric_limits<std::int64_t>::min());
  if ((given.is_integer() && data[0] != 1) || place[0] % 2 != 0 || !form->fits(data, size_of(raw), type, count)) {
    malformed("an array cannot be made of " + std::to_string(raw.size()) + " bytes");
  }
  const std::lock_guard lock(mutex_);
  auto& known = whole_[{raw.data(), raw.size(), type.kind, type.bytes, count, form->word, data}];
  std::shared_ptr<const std::byte> whole = known.lock();
  if (!whole) {
    const std::shared_ptr<std::byte> made = memory(static_cast<std::size_t>(bytes + kRoom));
    form->fill(data, raw, type, made.get(), count);
    require_whole(mapping);
    std::memset(made.get() + bytes, 0, static_cast<std::size_t>(kRoom));
    // kept with what it was made of: no other bytes can be where those are
    whole = {std::make_shared<const WholeArray>(made, source.owner), made.get()};
    known = whole;
    if (whole_.size() > most_) {
      std::erase_if(whole_, [](const auto& entry) { return entry.second.expired(); });
      most_ = 2 * whole_.size() + 64;
    }
  }
  return {whole.get(), bytes, kRoom, whole, type, -1};
}

}  // namespace hexforge
