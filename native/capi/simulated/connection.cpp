// SPDX-License-Identifier: Apache-2.0
#include "capi/simulated/connection.h"

#include <fstream>

#include "capi/failure.h"
#include "context/error.h"

namespace hexforge::capi {
namespace {

constexpr std::uint32_t kMostBytes = 32u << 20;  // of a message
constexpr const char* kGone = "the simulated device is gone, or has ended this process";
constexpr const char* kTokenFile = "?token_file=";

std::string with_length(const std::string& body) {
  if (body.size() > kMostBytes)
    throw Failure(QNN_COMMON_ERROR_MEM_ALLOC,
                  "a message of " + std::to_string(body.size()) + " bytes is more than the simulated device takes");
  const auto size = static_cast<std::uint32_t>(body.size());
  std::string framed;
  for (const int shift : {24, 16, 8, 0}) framed += static_cast<char>(size >> shift & 0xFF);
  return framed + body;
}

// What an answer has, or its error thrown.
hexforge::Json result_of(const hexforge::Json& answer, Qnn_ErrorHandle_t invalid) {
  const hexforge::Json* error = answer.find("error");
  if (!error) return answer["ok"];
  const hexforge::Json* number = error->find("number");
  auto code = number ? static_cast<Qnn_ErrorHandle_t>(number->integer()) : 0;
  if (!code && (*error)["kind"].text() == "ended") code = QNN_COMMON_ERROR_SYSTEM_COMMUNICATION;
  if (!code) code = invalid;
  throw Failure(code, (*error)["message"].text());
}

}  // namespace

DeviceConnection::DeviceConnection(const std::string& address, const std::string& about) {
  const std::string token = read_token(address);
  socket_.connect(address.substr(0, address.find('?')));
  Json hello;
  hello.begin('{').key("hexforge").number(1).key("token").text(token).key("role").text("process");
  const std::string body = hello.done() + ", " + about + "}";
  const std::string framed = with_length(body);
  socket_.send(framed.data(), framed.size());
  try {
    welcome_ = result_of(next_message(), QNN_COMMON_ERROR_SYSTEM_COMMUNICATION);
  } catch (const ContextError&) {
    throw Failure(QNN_COMMON_ERROR_SYSTEM_COMMUNICATION, address + ": the device does not answer");
  }
  reader_ = std::thread([this] { read_answers(); });
}

DeviceConnection::~DeviceConnection() {
  socket_.shut();
  if (reader_.joinable()) reader_.join();
}

std::string DeviceConnection::read_token(const std::string& address) const {
  const std::size_t query = address.find(kTokenFile);
  std::string path;
  if (query != std::string::npos) {
    path = address.substr(query + std::string_view(kTokenFile).size());
  } else if (address.starts_with("unix:")) {
    path = address.substr(5) + ".token";
  } else {
    throw Failure(QNN_COMMON_ERROR_INVALID_ARGUMENT,
                  "HEXFORGE_DEVICE: '" + address + "' is not unix:PATH or " + "tcp:127.0.0.1:PORT?token_file=PATH");
  }
  std::string token;
  if (!(std::ifstream(path) >> token))
    throw Failure(QNN_COMMON_ERROR_SYSTEM_COMMUNICATION,
                  path + ": there is no token: no device is served there; `hexforge device serve`");
  return token;
}

hexforge::Json DeviceConnection::next_message() {
  unsigned char head[4];
  if (!socket_.receive(head, sizeof head)) throw ContextError(ContextError::Kind::file, "the connection ended");
  const std::uint32_t size = static_cast<std::uint32_t>(head[0]) << 24 | head[1] << 16 | head[2] << 8 | head[3];
  if (!size || size > kMostBytes) throw ContextError(ContextError::Kind::format, "no message of a device");
  std::string body(size, '\0');
  if (!socket_.receive(body.data(), size)) throw ContextError(ContextError::Kind::file, "the connection ended");
  return hexforge::Json::parse(body, "the simulated device", 0);
}

void DeviceConnection::read_answers() {
  try {
    for (;;) {
      hexforge::Json answer = next_message();
      const hexforge::Json* number = answer.find("id");
      std::lock_guard lock(mutex_);
      if (number && number->is_integer()) answers_.emplace(number->integer(), std::move(answer));
      came_.notify_all();
    }
  } catch (const std::exception&) {
    std::lock_guard lock(mutex_);
    over_ = true;
    came_.notify_all();
  }
}

bool DeviceConnection::is_open() const {
  std::lock_guard lock(mutex_);
  return !over_;
}

hexforge::Json DeviceConnection::ask(const DeviceMessage& message, Qnn_ErrorHandle_t invalid) {
  std::int64_t number;
  {
    std::lock_guard lock(send_mutex_);
    number = ++last_;
    const std::string framed = with_length("{\"id\": " + std::to_string(number) + ", " + message.fields() + "}");
    try {
      socket_.send(framed.data(), framed.size());
    } catch (const Failure&) { throw Failure(QNN_COMMON_ERROR_SYSTEM_COMMUNICATION, kGone); }
  }
  std::unique_lock lock(mutex_);
  came_.wait(lock, [&] { return over_ || answers_.contains(number); });
  const auto found = answers_.find(number);
  if (found == answers_.end()) throw Failure(QNN_COMMON_ERROR_SYSTEM_COMMUNICATION, kGone);
  const hexforge::Json answer = std::move(found->second);
  answers_.erase(found);
  lock.unlock();
  return result_of(answer, invalid);
}

}  // namespace hexforge::capi
