// SPDX-License-Identifier: Apache-2.0
// Container: named sections of one file, each with a checksum (docs/context_format.md). Nothing is believed before its
// checksum is right, and nothing is read beyond the file.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "context/json.h"

namespace hexforge {

using Bytes = std::span<const std::byte>;

// Throws where the file of a mapping was truncated; nothing of -1.
void require_whole(int mapping);

// A file's bytes, mapped or in memory, at a multiple of 64.
class FileBytes {
 public:
  static std::shared_ptr<const FileBytes> map(const std::string& path);
  // Without an owner, or where they do not begin at a multiple of 64, the bytes are copied.
  static std::shared_ptr<const FileBytes> in_memory(Bytes bytes, std::shared_ptr<const void> owner);
  FileBytes(const FileBytes&) = delete;
  FileBytes& operator=(const FileBytes&) = delete;
  ~FileBytes();

  Bytes bytes() const { return bytes_; }
  void require_whole() const { hexforge::require_whole(mapping_); }

 private:
  FileBytes() = default;
  Bytes bytes_;
  std::shared_ptr<const void> owner_;
  void* mapped_ = nullptr;
  int mapping_ = -1;
};

class Container {
 public:
  static constexpr std::int64_t kPage = 4096;
  static constexpr std::int64_t kSlack = 2 * kPage;  // zeros behind the arrays of a file
  struct Section {
    std::string kind, name;
    std::int64_t offset, bytes;
    std::uint32_t crc32c;
  };

  Container(std::shared_ptr<const FileBytes> file, std::string where);
  // The sections of a file's bytes, of which the header and the table are verified.
  static std::vector<Section> read_table(Bytes all, const std::string& where);
  static bool recognises(Bytes bytes);  // whether they begin as a container does

  const std::string& where() const { return where_; }
  const std::vector<Section>& sections() const { return sections_; }
  const Section* find(std::string_view kind, std::string_view name) const;
  const Section& section(std::string_view kind, std::string_view name) const;
  Bytes bytes(const Section& section) const;
  void verify(const Section& section) const;
  Json json(std::string_view kind, std::string_view name) const;
  const FileBytes& file() const { return *file_; }
  const std::shared_ptr<const FileBytes>& shared_file() const { return file_; }

 private:
  std::shared_ptr<const FileBytes> file_;
  std::string where_;
  std::vector<Section> sections_;
  std::map<std::pair<std::string, std::string>, std::size_t> by_name_;
};

}  // namespace hexforge
