// SPDX-License-Identifier: Apache-2.0
// A layer of the OpenCL loader (OPENCL_LAYERS) whose calls fail when they are told to, as drivers' do: one call of a kind,
// once; or with the context it was for, every later call on which fails too; or without saying so, the context dead.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

namespace {

// Places in the loader's table of functions, which are part of its binary interface.
enum Call {
  CREATE_CONTEXT = 4, RETAIN_CONTEXT = 6, RELEASE_CONTEXT = 7, CREATE_QUEUE = 9, RETAIN_QUEUE = 10, RELEASE_QUEUE = 11,
  QUEUE_INFO = 12, CREATE_BUFFER = 14, RETAIN_MEMORY = 17, RELEASE_MEMORY = 18, MEMORY_INFO = 20, FROM_SOURCE = 26,
  FROM_BINARY = 27, RETAIN_PROGRAM = 28, RELEASE_PROGRAM = 29, BUILD = 30, PROGRAM_INFO = 32, CREATE_KERNEL = 34,
  RETAIN_KERNEL = 36, RELEASE_KERNEL = 37, SET_ARGUMENT = 38, KERNEL_INFO = 39, WAIT = 41, EVENT_INFO = 42,
  RETAIN_EVENT = 43, RELEASE_EVENT = 44, EVENT_TIMES = 45, FINISH = 47, READ = 48, WRITE = 49, LAUNCH = 59,
  CREATE_PART = 82, USER_EVENT = 84, USER_STATUS = 85, FILL = 102, CREATE_QUEUE_2 = 123, ENTRIES = 160,
};
enum Mode { ONCE = 0, LOST = 1, QUIET = 2, GONE = 3 };
enum Kind { CONTEXTS, QUEUES, MEMORY, PROGRAMS, KERNELS, EVENTS, KINDS };

using Handle = void*;
using Info = int32_t (*)(Handle, uint32_t, size_t, void*, size_t*);
void* target[ENTRIES];
void* table[ENTRIES];
size_t entries;
std::mutex lock;
std::map<Handle, int32_t> dead;
int64_t counts[ENTRIES];
std::atomic<int64_t> living[KINDS];
int armed_call = -1, armed_mode;
int64_t armed_after;
int32_t armed_code, gone_code;
bool fired;

template <class F> F* next(int call) { return reinterpret_cast<F*>(target[call]); }

Handle context_of(int info, uint32_t what, Handle object) {
  Handle context = nullptr;
  if (object) next<int32_t(Handle, uint32_t, size_t, void*, size_t*)>(info)(object, what, sizeof context, &context, nullptr);
  return context;
}
Handle of_queue(Handle q) { return context_of(QUEUE_INFO, 0x1090, q); }
Handle of_memory(Handle m) { return context_of(MEMORY_INFO, 0x1106, m); }
Handle of_program(Handle p) { return context_of(PROGRAM_INFO, 0x1161, p); }
Handle of_kernel(Handle k) { return context_of(KERNEL_INFO, 0x1193, k); }
Handle of_event(Handle e) { return context_of(EVENT_INFO, 0x11D4, e); }

// The status that a call ends with, 0 where it goes on; `quiet` where it says nothing and does nothing.
int32_t strike(int call, Handle context, bool* quiet = nullptr) {
  std::lock_guard<std::mutex> held(lock);
  if (gone_code) return gone_code;
  if (context && dead.count(context)) return dead[context];
  counts[call]++;
  if (call != armed_call || fired || counts[call] != armed_after) return 0;
  fired = true;
  if (armed_mode == GONE) gone_code = armed_code;
  if (armed_mode != ONCE && context) dead[context] = armed_code;
  if (armed_mode == QUIET && quiet) { *quiet = true; return 0; }
  return armed_code;
}

int32_t enqueued(Handle queue, Handle* event, bool quiet) {  // what a quiet failure leaves behind
  if (!quiet || !event) return 0;
  int32_t error = 0;
  *event = next<Handle(Handle, int32_t*)>(USER_EVENT)(of_queue(queue), &error);
  if (*event) { living[EVENTS]++; next<int32_t(Handle, int32_t)>(USER_STATUS)(*event, armed_code); }
  return 0;
}

template <class T> T* made(T* object, Kind kind) { if (object) living[kind]++; return object; }

#define FAIL(call, context) if (int32_t status = strike(call, context)) { if (error) *error = status; return nullptr; }
#define STOP(call, context) if (int32_t status = strike(call, context)) return status;
#define ENQUEUE(call, queue, event) \
  bool quiet = false; \
  if (int32_t status = strike(call, of_queue(queue), &quiet)) return status; \
  if (quiet) return enqueued(queue, event, true);
#define COUNTED(result, event) int32_t r = result; if (!r && event) living[EVENTS]++; return r;

Handle create_context(const intptr_t* p, uint32_t n, const Handle* d, void* f, void* u, int32_t* error) {
  FAIL(CREATE_CONTEXT, nullptr)
  Handle context = next<Handle(const intptr_t*, uint32_t, const Handle*, void*, void*, int32_t*)>(CREATE_CONTEXT)(p, n, d, f, u, error);
  { std::lock_guard<std::mutex> held(lock); dead.erase(context); }  // the address of one that was lost
  return made(context, CONTEXTS);
}
Handle create_queue(Handle c, Handle d, uint64_t p, int32_t* error) {
  FAIL(CREATE_QUEUE, c)
  return made(next<Handle(Handle, Handle, uint64_t, int32_t*)>(CREATE_QUEUE)(c, d, p, error), QUEUES);
}
Handle create_queue_2(Handle c, Handle d, const uint64_t* p, int32_t* error) {
  FAIL(CREATE_QUEUE, c)
  return made(next<Handle(Handle, Handle, const uint64_t*, int32_t*)>(CREATE_QUEUE_2)(c, d, p, error), QUEUES);
}
Handle create_buffer(Handle c, uint64_t f, size_t n, void* h, int32_t* error) {
  FAIL(CREATE_BUFFER, c)
  return made(next<Handle(Handle, uint64_t, size_t, void*, int32_t*)>(CREATE_BUFFER)(c, f, n, h, error), MEMORY);
}
Handle create_part(Handle m, uint64_t f, uint32_t t, const void* i, int32_t* error) {
  FAIL(CREATE_PART, of_memory(m))
  return made(next<Handle(Handle, uint64_t, uint32_t, const void*, int32_t*)>(CREATE_PART)(m, f, t, i, error), MEMORY);
}
Handle from_source(Handle c, uint32_t n, const char** s, const size_t* l, int32_t* error) {
  FAIL(FROM_SOURCE, c)
  return made(next<Handle(Handle, uint32_t, const char**, const size_t*, int32_t*)>(FROM_SOURCE)(c, n, s, l, error), PROGRAMS);
}
Handle from_binary(Handle c, uint32_t n, const Handle* d, const size_t* l, const unsigned char** b, int32_t* s, int32_t* error) {
  FAIL(FROM_BINARY, c)
  return made(next<Handle(Handle, uint32_t, const Handle*, const size_t*, const unsigned char**, int32_t*, int32_t*)>(FROM_BINARY)(c, n, d, l, b, s, error), PROGRAMS);
}
Handle create_kernel(Handle p, const char* n, int32_t* error) {
  FAIL(CREATE_KERNEL, of_program(p))
  return made(next<Handle(Handle, const char*, int32_t*)>(CREATE_KERNEL)(p, n, error), KERNELS);
}
int32_t build(Handle p, uint32_t n, const Handle* d, const char* o, void* f, void* u) {
  STOP(BUILD, of_program(p))
  return next<int32_t(Handle, uint32_t, const Handle*, const char*, void*, void*)>(BUILD)(p, n, d, o, f, u);
}
int32_t program_info(Handle p, uint32_t w, size_t n, void* v, size_t* r) {
  STOP(PROGRAM_INFO, of_program(p))
  return next<int32_t(Handle, uint32_t, size_t, void*, size_t*)>(PROGRAM_INFO)(p, w, n, v, r);
}
int32_t set_argument(Handle k, uint32_t i, size_t n, const void* v) {
  STOP(SET_ARGUMENT, of_kernel(k))
  return next<int32_t(Handle, uint32_t, size_t, const void*)>(SET_ARGUMENT)(k, i, n, v);
}
int32_t finish(Handle q) { STOP(FINISH, of_queue(q)) return next<int32_t(Handle)>(FINISH)(q); }
int32_t wait(uint32_t n, const Handle* e) {
  STOP(WAIT, n ? of_event(e[0]) : nullptr)
  return next<int32_t(uint32_t, const Handle*)>(WAIT)(n, e);
}
int32_t event_info(Handle e, uint32_t w, size_t n, void* v, size_t* r) {
  STOP(EVENT_INFO, of_event(e))
  return next<int32_t(Handle, uint32_t, size_t, void*, size_t*)>(EVENT_INFO)(e, w, n, v, r);
}
int32_t event_times(Handle e, uint32_t w, size_t n, void* v, size_t* r) {
  STOP(EVENT_TIMES, of_event(e))
  return next<int32_t(Handle, uint32_t, size_t, void*, size_t*)>(EVENT_TIMES)(e, w, n, v, r);
}
int32_t read(Handle q, Handle m, uint32_t b, size_t o, size_t n, void* p, uint32_t c, const Handle* w, Handle* e) {
  ENQUEUE(READ, q, e)
  COUNTED((next<int32_t(Handle, Handle, uint32_t, size_t, size_t, void*, uint32_t, const Handle*, Handle*)>(READ)(q, m, b, o, n, p, c, w, e)), e)
}
int32_t write(Handle q, Handle m, uint32_t b, size_t o, size_t n, const void* p, uint32_t c, const Handle* w, Handle* e) {
  ENQUEUE(WRITE, q, e)
  COUNTED((next<int32_t(Handle, Handle, uint32_t, size_t, size_t, const void*, uint32_t, const Handle*, Handle*)>(WRITE)(q, m, b, o, n, p, c, w, e)), e)
}
int32_t fill(Handle q, Handle m, const void* p, size_t s, size_t o, size_t n, uint32_t c, const Handle* w, Handle* e) {
  ENQUEUE(FILL, q, e)
  COUNTED((next<int32_t(Handle, Handle, const void*, size_t, size_t, size_t, uint32_t, const Handle*, Handle*)>(FILL)(q, m, p, s, o, n, c, w, e)), e)
}
int32_t launch(Handle q, Handle k, uint32_t d, const size_t* o, const size_t* g, const size_t* l, uint32_t c, const Handle* w, Handle* e) {
  ENQUEUE(LAUNCH, q, e)
  COUNTED((next<int32_t(Handle, Handle, uint32_t, const size_t*, const size_t*, const size_t*, uint32_t, const Handle*, Handle*)>(LAUNCH)(q, k, d, o, g, l, c, w, e)), e)
}

template <int call, int kind, int step> int32_t owned(Handle object) {
  living[kind] += step;
  return next<int32_t(Handle)>(call)(object);
}

}  // namespace

extern "C" {
int32_t clGetLayerInfo(uint32_t what, size_t size, void* value, size_t* size_ret) {
  const uint32_t version = 100;
  if (what != 0x4240) return -30;
  if (value && size >= sizeof version) *static_cast<uint32_t*>(value) = version;
  if (size_ret) *size_ret = sizeof version;
  return 0;
}
int32_t clInitLayer(uint32_t count, void* const* below, uint32_t* count_ret, void** const* layer) {
  entries = count < ENTRIES ? count : ENTRIES;
  for (size_t i = 0; i < entries; i++) target[i] = table[i] = below[i];
  table[CREATE_CONTEXT] = (void*)create_context, table[CREATE_QUEUE] = (void*)create_queue;
  table[CREATE_QUEUE_2] = (void*)create_queue_2, table[CREATE_BUFFER] = (void*)create_buffer;
  table[CREATE_PART] = (void*)create_part, table[FROM_SOURCE] = (void*)from_source;
  table[FROM_BINARY] = (void*)from_binary, table[CREATE_KERNEL] = (void*)create_kernel, table[BUILD] = (void*)build;
  table[PROGRAM_INFO] = (void*)program_info, table[SET_ARGUMENT] = (void*)set_argument;
  table[FINISH] = (void*)finish, table[WAIT] = (void*)wait, table[EVENT_INFO] = (void*)event_info;
  table[EVENT_TIMES] = (void*)event_times, table[READ] = (void*)read, table[WRITE] = (void*)write;
  table[FILL] = (void*)fill, table[LAUNCH] = (void*)launch;
  table[RETAIN_CONTEXT] = (void*)owned<RETAIN_CONTEXT, CONTEXTS, 1>;
  table[RELEASE_CONTEXT] = (void*)owned<RELEASE_CONTEXT, CONTEXTS, -1>;
  table[RETAIN_QUEUE] = (void*)owned<RETAIN_QUEUE, QUEUES, 1>;
  table[RELEASE_QUEUE] = (void*)owned<RELEASE_QUEUE, QUEUES, -1>;
  table[RETAIN_MEMORY] = (void*)owned<RETAIN_MEMORY, MEMORY, 1>;
  table[RELEASE_MEMORY] = (void*)owned<RELEASE_MEMORY, MEMORY, -1>;
  table[RETAIN_PROGRAM] = (void*)owned<RETAIN_PROGRAM, PROGRAMS, 1>;
  table[RELEASE_PROGRAM] = (void*)owned<RELEASE_PROGRAM, PROGRAMS, -1>;
  table[RETAIN_KERNEL] = (void*)owned<RETAIN_KERNEL, KERNELS, 1>;
  table[RELEASE_KERNEL] = (void*)owned<RELEASE_KERNEL, KERNELS, -1>;
  table[RETAIN_EVENT] = (void*)owned<RETAIN_EVENT, EVENTS, 1>;
  table[RELEASE_EVENT] = (void*)owned<RELEASE_EVENT, EVENTS, -1>;
  *count_ret = static_cast<uint32_t>(entries);
  *const_cast<void***>(layer) = table;
  return 0;
}

// What tests tell it.
void failing_arm(int call, int64_t after, int32_t code, int mode) {
  std::lock_guard<std::mutex> held(lock);
  for (auto& c : counts) c = 0;
  armed_call = call, armed_after = after, armed_code = code, armed_mode = mode, fired = false, gone_code = 0;
}
int failing_fired() { std::lock_guard<std::mutex> held(lock); return fired; }
int64_t failing_count(int call) { std::lock_guard<std::mutex> held(lock); return counts[call]; }
int64_t failing_living(int kind) { return living[kind]; }
}
