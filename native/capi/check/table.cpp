// SPDX-License-Identifier: Apache-2.0
// The table of functions with a check around each.
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "capi/check/arguments.h"
#include "capi/check/rules.h"

namespace hexforge::capi::check {
namespace {

using Table = QnnInterface_Implementation_t;
constexpr auto kListAsync = &Table::contextCreateFromBinaryListAsync;

template <auto kMember>
struct Member {};
template <auto kMember, auto... kOthers>
constexpr bool kIs = (std::is_same_v<Member<kMember>, Member<kOthers>> || ...);
template <auto kMember>
constexpr bool kFrees = kIs<kMember, &Table::contextFree, &Table::backendFree, &Table::deviceFree, &Table::logFree,
                            &Table::profileFree, &Table::signalFree>;

template <std::uint32_t kBackend>
Table& real() {
  static Table table;
  return table;
}

std::atomic<std::uint64_t> numbers{0};
std::atomic<int> calls_now{0}, lists_now{0};
thread_local int depth = 0;

// HEXFORGE_QNN_CHAOS=NUMBER:CODE: that call fails with that code and does nothing, so that a program shows what it
// makes of it.
struct Chaos {
  std::uint64_t number = 0;
  Qnn_ErrorHandle_t code = 0;
};
const Chaos& chaos() {
  static const Chaos asked = [] {
    Chaos made;
    const char* given = std::getenv("HEXFORGE_QNN_CHAOS");
    char* end = nullptr;
    if (given) made.number = std::strtoull(given, &end, 10);
    if (end && *end == ':') made.code = std::strtoull(end + 1, nullptr, 10);
    return made;
  }();
  return asked;
}

std::mutex handles_mutex;
std::map<const void*, int>& handles_now() {
  static auto* all = new std::map<const void*, int>;
  return *all;
}

// Handles among the arguments of a call, while it runs: one profile is for one call, and what runs is not freed.
class HandlesInUse {
 public:
  template <class... A>
  explicit HandlesInUse(bool frees_context, const A&... arguments) : frees_context_(frees_context) {
    (add(arguments), ...);
  }
  ~HandlesInUse() {
    std::lock_guard lock(handles_mutex);
    for (const void* each : mine_)
      if (--handles_now()[each] == 0) handles_now().erase(each);
  }
  HandlesInUse(const HandlesInUse&) = delete;
  HandlesInUse& operator=(const HandlesInUse&) = delete;

 private:
  bool take(const void* handle) {
    std::lock_guard lock(handles_mutex);
    mine_.push_back(handle);
    return handles_now()[handle]++ > 0;
  }
  template <class T>
  void add(const T& argument) {
    if constexpr (std::is_same_v<T, void*>) switch (Handles::all().kind_of(argument)) {
        case Kind::profile:
          if (take(argument))
            report("profile-shared", name_of(argument) + " is given to another call at the same time",
                   "Give every call that runs at the same time a profile of its own.");
          break;
        case Kind::graph:
          if (const auto graph = Handles::all().find<Graph>(argument))
            if (const auto context = graph->context.lock()) take(context->handle);
          break;
        case Kind::context:
          if (take(argument) && frees_context_)
            report("context-freed-in-use", name_of(argument) + " is freed while another call has it or a graph of it",
                   "Wait for the calls of other threads to return before QnnContext_free.");
          break;
        default: break;
      }
  }
  const bool frees_context_;
  std::vector<const void*> mine_;
};

template <auto kMember, class... A>
bool before(const A&... a) {
  const auto args = std::tie(a...);
  bool told = false;
  const auto look = [&](const auto& argument) {
    if constexpr (std::is_same_v<std::decay_t<decltype(argument)>, void*>)
      told |= before_handle(argument, kFrees<kMember>);
  };
  (look(a), ...);
  const auto profile = [&](const auto& argument) {
    if constexpr (std::is_same_v<std::decay_t<decltype(argument)>, void*> &&
                  std::is_same_v<std::decay_t<decltype(std::get<0>(args))>, void*>)
      before_profile(std::get<0>(args), argument);
  };
  (profile(a), ...);
  if constexpr (kIs<kMember, &Table::backendFree>) before_backend_free(std::get<0>(args));
  if constexpr (kIs<kMember, &Table::logFree>) before_log_free(std::get<0>(args));
  if constexpr (kIs<kMember, &Table::contextCreate>) before_context_create(std::get<2>(args));
  if constexpr (kIs<kMember, &Table::contextCreateFromBinary> ||
                kIs<kMember, &Table::contextCreateFromBinaryWithSignal>)
    before_context_from_binary(std::get<2>(args));
  if constexpr (kIs<kMember, kListAsync>) before_context_list(std::get<2>(args));
  if constexpr (kIs<kMember, &Table::contextFree>) before_context_free(std::get<0>(args));
  if constexpr (kIs<kMember, &Table::graphSetConfig>) before_graph_set_config(std::get<0>(args), std::get<1>(args));
  if constexpr (kIs<kMember, &Table::graphFinalize>) before_graph_finalize(std::get<0>(args));
  if constexpr (kIs<kMember, &Table::memDeRegister>) before_mem_deregister(std::get<0>(args), std::get<1>(args));
  if constexpr (kIs<kMember, &Table::graphAddNode>) told |= before_node(std::get<0>(args), std::get<1>(args));
  if constexpr (kIs<kMember, &Table::graphExecute> || kIs<kMember, &Table::graphExecuteAsync>)
    told |=
        before_tensors(std::get<0>(args), std::get<1>(args), std::get<2>(args), std::get<3>(args), std::get<4>(args));
  return told;
}

template <auto kMember, class... A>
void after(Qnn_ErrorHandle_t code, bool told, const A&... a) {
  const auto args = std::tie(a...);
  if (code != QNN_SUCCESS) {
    if (!told) after_code(code);
    return;
  }
  const auto note = [&](const auto& argument) {
    if constexpr (std::is_same_v<std::decay_t<decltype(argument)>, void**> && !kIs<kMember, &Table::graphRetrieve>)
      if (argument) note_created(*argument);
  };
  (note(a), ...);
  if constexpr (kFrees<kMember>) note_freed(std::get<0>(args));
  if constexpr (kIs<kMember, &Table::memDeRegister>)
    for (std::uint32_t i = 0; i < std::get<1>(args); ++i) note_freed(std::get<0>(args)[i]);
  if constexpr (kIs<kMember, &Table::contextCreateFromBinary> ||
                kIs<kMember, &Table::contextCreateFromBinaryWithSignal>)
    after_context_from_binary(std::get<1>(args), *std::get<5>(args));
  if constexpr (kIs<kMember, &Table::graphAddNode>) after_graph_add_node(std::get<0>(args));
  if constexpr (kIs<kMember, &Table::tensorCreateGraphTensor>) after_graph_tensor(std::get<0>(args), std::get<1>(args));
}

// The list's own notes: calls of other threads while it works, and of this one from its notify functions.
template <auto kMember>
struct Beside {
  Beside() {
    const int others = calls_now++ - depth++;
    if constexpr (kIs<kMember, kListAsync>) ++lists_now;
    const bool list_of_another = lists_now > 0 && depth == 1 && !kIs<kMember, kListAsync>;
    if ((kIs<kMember, kListAsync> && others > 0) || list_of_another)
      report("parallel-to-list", "QnnContext_createFromBinaryListAsync runs beside another call of the API",
             "Call it from one thread, and nothing else until it has ended.");
  }
  ~Beside() {
    --depth;
    --calls_now;
    if constexpr (kIs<kMember, kListAsync>) --lists_now;
  }
  Beside(const Beside&) = delete;
  Beside& operator=(const Beside&) = delete;
};

template <std::uint32_t kBackend, auto kMember, class Function>
struct Checked;
template <std::uint32_t kBackend, auto kMember, class... A>
struct Checked<kBackend, kMember, Qnn_ErrorHandle_t (*)(A...)> {
  static const char* name;
  static Qnn_ErrorHandle_t call(A... arguments) {
    Call own{name, ++numbers, [&] { return arguments_text(arguments...); }};
    Call* outer = current_call();
    set_current_call(&own);
    const std::uint64_t began = now_us();
    Qnn_ErrorHandle_t code;
    if (own.number == chaos().number && !kFrees<kMember>) {
      code = chaos().code;
    } else if (on()) {
      const Beside<kMember> beside;
      const HandlesInUse handles(kIs<kMember, &Table::contextFree>, arguments...);
      const bool told = before<kMember>(arguments...);
      code = (real<kBackend>().*kMember)(arguments...);
      after<kMember>(code, told, arguments...);
    } else {
      code = (real<kBackend>().*kMember)(arguments...);
    }
    if (calls_on()) log_call(own, code, now_us() - began);
    set_current_call(outer);
    return code;
  }
};
template <std::uint32_t kBackend, auto kMember, class... A>
const char* Checked<kBackend, kMember, Qnn_ErrorHandle_t (*)(A...)>::name = "";

template <std::uint32_t kBackend, auto kMember>
void put(Table& table, const char* name) {
  if (kIs<kMember, &Table::errorGetVerboseMessage, &Table::errorFreeVerboseMessage>)
    return;  // they tell of the call before
  using Own = Checked<kBackend, kMember, std::decay_t<decltype(table.*kMember)>>;
  Own::name = name;
  if (table.*kMember) table.*kMember = Own::call;
}

template <std::uint32_t kBackend>
void put_all(Table& table) {
  real<kBackend>() = table;
#define QNN_CALL(how, member, type, name, function) put<kBackend, &Table::member>(table, name);
#include "call_table.inc"
#undef QNN_CALL
}

int owner = 0;  // the process that was asked to check; one that it forks has nothing of its own to free

// At the very end: programs free things in what they do at exit, too.
__attribute__((destructor)) void end_of_process() {
  if (on() && owner == process_number()) at_end();
}

}  // namespace

void wrap(Table& table, std::uint32_t backend) {
  if (!on() && !calls_on() && !chaos().number) return;
  if (on()) owner = process_number();
  if (on()) look_for_other_libraries();
  switch (backend) {
    case QNN_BACKEND_ID_HTP: return put_all<QNN_BACKEND_ID_HTP>(table);
    case QNN_BACKEND_ID_CPU: return put_all<QNN_BACKEND_ID_CPU>(table);
    case QNN_BACKEND_ID_GPU: return put_all<QNN_BACKEND_ID_GPU>(table);
    case QNN_BACKEND_ID_SAVER: return put_all<QNN_BACKEND_ID_SAVER>(table);
    default: return;
  }
}

}  // namespace hexforge::capi::check
