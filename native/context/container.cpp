// SPDX-License-Identifier: Apache-2.0
#include "context/container.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#if defined(_WIN32)
#include <windows.h>

#include <filesystem>
#include <system_error>
#else
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#endif

#include "context/error.h"
#include "core/aligned_memory.h"
#include "core/checksum.h"
#include "core/mapping.h"

namespace hexforge {
namespace {

constexpr std::string_view kMagic("HXFCTX\r\n", 8);
constexpr std::int64_t kHeader = 64;
constexpr std::uint32_t kVersion = 4, kMostSections = 1 << 16;
constexpr std::int64_t kMostTable = 64 << 20;
constexpr int kBinaryVersion = 5004;  // QNN_CONTEXT_ERROR_BINARY_VERSION
constexpr std::size_t kAlignment = 64;

template <class T>
T little(Bytes bytes, std::size_t at) {
  T value = 0;
  for (std::size_t i = sizeof(T); i-- > 0;) value = static_cast<T>(value << 8 | static_cast<T>(bytes[at + i]));
  return value;
}

std::string_view text_of(Bytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

// What else a file may be.
std::string resemblance(std::string_view start) {
  if (start.empty()) return "; it is empty";
  if (start[0] == '\x08' || start[0] == '\x0a') return "; it may be an ONNX model";
  if (start.starts_with("PK\x03\x04")) return "; it is a zip archive (a .dlc or .pte of other tools?)";
  return "; a context binary of Qualcomm's tools is read by Qualcomm's libraries only (onnxruntime-qnn)";
}

}  // namespace

std::shared_ptr<const FileBytes> FileBytes::map(const std::string& path) {
  const auto refuse = [&](const std::string& why) {
    throw ContextError(ContextError::Kind::file, path + ": cannot be read: " + why);
  };
  std::shared_ptr<FileBytes> made(new FileBytes);
#if defined(_WIN32)
  const auto last_error = [] { return std::system_category().message(static_cast<int>(GetLastError())); };
  const std::u8string name(path.begin(), path.end());
  const HANDLE file = CreateFileW(std::filesystem::path(name).c_str(), GENERIC_READ, FILE_SHARE_READ, nullptr,
                                  OPEN_EXISTING, FILE_ATTRIBUTE_NORMAL, nullptr);
  if (file == INVALID_HANDLE_VALUE) refuse(last_error());
  LARGE_INTEGER size = {};
  bool failed = !GetFileSizeEx(file, &size);
  if (!failed && size.QuadPart > 0) {
    const HANDLE mapping = CreateFileMappingW(file, nullptr, PAGE_READONLY, 0, 0, nullptr);
    made->mapped_ = mapping ? MapViewOfFile(mapping, FILE_MAP_READ, 0, 0, 0) : nullptr;
    failed = made->mapped_ == nullptr;
    if (mapping) CloseHandle(mapping);
    if (!failed) made->bytes_ = {static_cast<const std::byte*>(made->mapped_), static_cast<std::size_t>(size.QuadPart)};
  }
  const std::string why = failed ? last_error() : "";
  CloseHandle(file);
  if (failed) refuse(why);
#else
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) refuse(std::strerror(errno));
  struct stat status;
  int error = fstat(file, &status) != 0 ? errno : S_ISREG(status.st_mode) ? 0 : EINVAL;
  if (error == 0 && status.st_size > 0) {
    const auto size = static_cast<std::size_t>(status.st_size);
    void* start = mmap(nullptr, size, PROT_READ, MAP_SHARED, file, 0);
    if (start == MAP_FAILED) {
      error = errno;
    } else {
      made->mapped_ = start;
      made->bytes_ = {static_cast<const std::byte*>(start), size};
      made->mapping_ = guard_mapping(start, size, file);
    }
  }
  close(file);
  if (error != 0) refuse(std::strerror(error));
#endif
  return made;
}

std::shared_ptr<const FileBytes> FileBytes::in_memory(Bytes bytes, std::shared_ptr<const void> owner) {
  std::shared_ptr<FileBytes> made(new FileBytes);
  if (owner && reinterpret_cast<std::uintptr_t>(bytes.data()) % kAlignment == 0) {
    made->bytes_ = bytes;
    made->owner_ = std::move(owner);
    return made;
  }
  const std::size_t whole = (bytes.size() / kAlignment + 1) * kAlignment;
  void* copy = allocate_aligned(kAlignment, whole);
  if (!copy) throw ContextError(ContextError::Kind::memory, "a context's bytes cannot be held in memory");
  made->owner_ = std::shared_ptr<void>(copy, free_aligned);
  if (!bytes.empty()) std::memcpy(copy, bytes.data(), bytes.size());
  made->bytes_ = {static_cast<const std::byte*>(copy), bytes.size()};
  return made;
}

FileBytes::~FileBytes() {
  if (!mapped_) return;
  unguard_mapping(mapping_);
#if defined(_WIN32)
  UnmapViewOfFile(mapped_);
#else
  munmap(mapped_, bytes_.size());
#endif
}

void require_whole(int mapping) {
  if (!mapping_lost(mapping)) return;
  malformed(
      "a file that holds its constants was truncated while it was open; write contexts anew, and rename them over the "
      "old");
}

bool Container::recognises(Bytes bytes) { return text_of(bytes).starts_with(kMagic); }

Container::Container(std::shared_ptr<const FileBytes> file, std::string where)
    : file_(std::move(file)), where_(std::move(where)), sections_(read_table(file_->bytes(), where_)) {
  for (std::size_t i = 0; i < sections_.size(); ++i) by_name_[{sections_[i].kind, sections_[i].name}] = i;
}

std::vector<Container::Section> Container::read_table(Bytes all, const std::string& where) {
  const auto size = static_cast<std::int64_t>(all.size());
  if (!recognises(all)) {
    malformed(where + ": is not a hexforge context" + resemblance(text_of(all).substr(0, 16)), 0);
  }
  if (size < kHeader) malformed(where + ": ends within the header", size);
  if (little<std::uint32_t>(all, 60) != crc32c(all.data(), 60, 0)) {
    malformed(where + ": the header is damaged: its checksum is wrong", 60);
  }
  const auto version = little<std::uint32_t>(all, 8);
  if (version != kVersion || little<std::uint32_t>(all, 12) != kHeader) {
    malformed(where + ": is of format version " + std::to_string(version) + ", this hexforge reads " +
                  std::to_string(kVersion) + "; compile the model again",
              8, kBinaryVersion);
  }
  if (little<std::uint64_t>(all, 16) != all.size()) {
    const auto said = little<std::uint64_t>(all, 16);
    malformed(where + ": has " + std::to_string(size) + " bytes, its header says " + std::to_string(said),
              static_cast<std::int64_t>(std::min<std::uint64_t>(said, all.size())));
  }
  const auto at = little<std::uint64_t>(all, 24), table_bytes = little<std::uint64_t>(all, 32);
  const auto count = little<std::uint32_t>(all, 40);
  if (count > kMostSections || table_bytes > kMostTable || at < kPage || at > all.size() ||
      table_bytes != all.size() - at) {
    malformed(where + ": the header puts the table of sections outside the file", 24);
  }
  const Bytes table = all.subspan(at);
  const auto first = static_cast<std::int64_t>(at);
  if (crc32c(table.data(), table.size(), 0) != little<std::uint32_t>(all, 44)) {
    malformed(where + ": the table of sections is damaged: its checksum is wrong", first);
  }
  try {
    const Json rows = Json::parse(text_of(table), where, first);
    std::vector<Section> sections;
    std::set<std::pair<std::string, std::string>> seen;
    std::int64_t end = kPage;
    for (const Json& row : rows.list(count)) {
      const Json::List& fields = row.list(5);
      Section section{fields[0].text(), fields[1].text(), fields[2].integer(), fields[3].integer(), 0};
      const std::int64_t crc = fields[4].integer();
      section.crc32c = static_cast<std::uint32_t>(crc);
      if (crc > UINT32_MAX || section.offset != end || section.bytes > first ||
          section.offset > first - section.bytes || !seen.emplace(section.kind, section.name).second) {
        malformed("a section lies outside its place, or two have one name");
      }
      end += (section.bytes + kPage - 1) / kPage * kPage;
      sections.push_back(std::move(section));
    }
    if (end != first) malformed("the sections do not fill the file");
    return sections;
  } catch (const ContextError& error) {
    malformed(where + ": the table of sections is malformed: " + error.what(), error.offset < 0 ? first : error.offset);
  }
}

const Container::Section* Container::find(std::string_view kind, std::string_view name) const {
  const auto found = by_name_.find({std::string(kind), std::string(name)});
  return found == by_name_.end() ? nullptr : &sections_[found->second];
}

const Container::Section& Container::section(std::string_view kind, std::string_view name) const {
  if (const Section* section = find(kind, name)) return *section;
  malformed(where_ + ": has no section " + std::string(kind) + " '" + std::string(name) + "'");
}

Bytes Container::bytes(const Section& section) const {
  return file_->bytes().subspan(static_cast<std::size_t>(section.offset), static_cast<std::size_t>(section.bytes));
}

void Container::verify(const Section& section) const {
  const Bytes data = bytes(section);
  if (crc32c(data.data(), data.size(), 0) != section.crc32c) {
    malformed(where_ + ": section " + section.kind + " '" + section.name + "' is damaged: its checksum is wrong",
              section.offset);
  }
}

Json Container::json(std::string_view kind, std::string_view name) const {
  const Section& found = section(kind, name);
  verify(found);
  Json data = Json::parse(text_of(bytes(found)), where_, found.offset);
  file_->require_whole();
  return data;
}

}  // namespace hexforge
