// SPDX-License-Identifier: Apache-2.0
// The tables of functions, one for each library; thin.c asks for them by the library's number.
#include "capi/functions.h"

#include "capi/check/check.h"

namespace hexforge::capi {
namespace {

// How a place of a table is filled, by the word of functions.csv.
template <const Library& kLibrary, auto kFunction, class... A>
void put_library(Qnn_ErrorHandle_t (*&place)(A...)) {
  place = [](A... arguments) { return kFunction(kLibrary, arguments...); };
}
template <class... A>
void put_refused(Qnn_ErrorHandle_t (*&place)(A...)) {
  place = [](A...) -> Qnn_ErrorHandle_t { return QNN_COMMON_ERROR_NOT_SUPPORTED; };
}
// onnxruntime's provider has a profile's log written in QNN's own format, which is not done; its CSV comes from
// QnnProfile, and it fails where these fail.
template <class... A>
void put_nothing(Qnn_ErrorHandle_t (*&place)(A...)) {
  place = [](A...) -> Qnn_ErrorHandle_t { return QNN_SUCCESS; };
}

// Room behind a table: functions that newer versions append say that they are not supported.
using Appended = Qnn_ErrorHandle_t (*)();

struct Table {
  QnnInterface_t interface{};
  Appended appended[32];
};

#define QNN_CALL(how, member, type, name, function) QNN_CALL_##how(member, function)
#define QNN_CALL_yes(member, function) f.member = function;
#define QNN_CALL_library(member, function) put_library<kLibrary, function>(f.member);
#define QNN_CALL_refused(member, function) put_refused(f.member);
#define QNN_CALL_nothing(member, function) put_nothing(f.member);

template <const Library& kLibrary>
Table whole_table() {
  Table made;
  made.interface.backendId = kLibrary.id;
  made.interface.providerName = kLibrary.provider;
  made.interface.apiVersion = {{QNN_API_VERSION_MAJOR, QNN_API_VERSION_MINOR, QNN_API_VERSION_PATCH}, kLibrary.version};
  QnnInterface_Implementation_t& f = made.interface.v2;
#include "call_table.inc"
  check::wrap(f, kLibrary.id);
  for (auto& each : made.appended) put_refused(each);
  return made;
}

struct SystemTable {
  QnnSystemInterface_t interface{};
  Appended appended[48];
};

SystemTable whole_system_table() {
  SystemTable made;
  made.interface.providerName = "SYSTEM_QTI_AISW";
  made.interface.systemApiVersion = {QNN_SYSTEM_API_VERSION_MAJOR, QNN_SYSTEM_API_VERSION_MINOR,
                                     QNN_SYSTEM_API_VERSION_PATCH};
  QnnSystemInterface_Implementation_t& f = made.interface.v1;
#include "system_call_table.inc"
  for (auto& each : made.appended) put_refused(each);
  return made;
}

}  // namespace
}  // namespace hexforge::capi

using namespace hexforge::capi;

extern "C" QNN_API const QnnInterface_t** hexforge_qnn_providers(std::uint32_t backend, std::uint32_t* count) {
  static const Table htp = whole_table<kHtp>(), cpu = whole_table<kCpu>(), gpu = whole_table<kGpu>(),
                     saver = whole_table<kSaver>();
  static const QnnInterface_t* lists[] = {&htp.interface, &cpu.interface, &gpu.interface, &saver.interface};
  for (const QnnInterface_t*& each : lists)
    if (each->backendId == backend) {
      *count = 1;
      return &each;
    }
  *count = 0;
  return nullptr;
}

extern "C" QNN_API const QnnSystemInterface_t** hexforge_qnn_system_providers(std::uint32_t* count) {
  static const SystemTable table = whole_system_table();
  static const QnnSystemInterface_t* list[] = {&table.interface};
  *count = 1;
  return list;
}
