// SPDX-License-Identifier: Apache-2.0
// The backend "QnnBackend" of ExecuTorch's own runtime, answered for by functions that are given at registration.
// Built against the headers of the executorch wheel by hexforge.addons.executorch.running.stock_runtime.
#include <executorch/runtime/backend/interface.h>
#include <executorch/runtime/core/event_tracer_hooks_delegate.h>
#include <executorch/runtime/core/exec_aten/util/tensor_util.h>

#include <cstdint>
#include <vector>

namespace et = ::executorch::runtime;

extern "C" {

constexpr int kMostDims = 16;

// A tensor argument.
struct HexforgeTensor {
  void* data;
  uint64_t bytes;
  int32_t scalar_type;
  int32_t rank;
  int32_t sizes[kMostDims];
};

// The handle of a delegate, or a negative number.
typedef int64_t (*HexforgeInit)(const void* blob, uint64_t bytes, const void* spec, uint64_t spec_bytes,
                                const char* method);
// 0, or the number of an error; `tracer` is for hexforge_log.
typedef int32_t (*HexforgeExecute)(int64_t handle, int32_t count, HexforgeTensor* arguments, void* tracer);
typedef void (*HexforgeDestroy)(int64_t handle);
}

namespace {

class Backend final : public et::BackendInterface {
 public:
  HexforgeInit start = nullptr;
  HexforgeExecute run = nullptr;
  HexforgeDestroy end = nullptr;

  bool is_available() const override { return start != nullptr; }

  et::Result<et::DelegateHandle*> init(et::BackendInitContext& context, et::FreeableBuffer* processed,
                                       et::ArrayRef<et::CompileSpec> specs) const override {
    const et::CompileSpec* spec = specs.empty() ? nullptr : &specs[0];
    const char* method = context.get_method_name();
    int64_t handle = start(processed->data(), processed->size(), spec ? spec->value.buffer : nullptr,
                           spec ? spec->value.nbytes : 0, method ? method : "forward");
    processed->Free();  // what is kept of it was copied
    if (handle < 0) return et::Error::DelegateInvalidCompatibility;
    return reinterpret_cast<et::DelegateHandle*>(handle + 1);
  }

  et::Error execute(et::BackendExecutionContext& context, et::DelegateHandle* handle,
                    et::Span<et::EValue*> args) const override {
    std::vector<HexforgeTensor> tensors(args.size());
    for (size_t i = 0; i < args.size(); ++i) {
      if (!args[i]->isTensor()) return et::Error::NotSupported;
      auto& tensor = args[i]->toTensor();
      if (tensor.dim() > kMostDims) return et::Error::NotSupported;
      HexforgeTensor& found = tensors[i];
      found = {tensor.mutable_data_ptr(), tensor.nbytes(), static_cast<int32_t>(tensor.scalar_type()),
               static_cast<int32_t>(tensor.dim()), {}};
      for (int d = 0; d < found.rank; ++d) found.sizes[d] = static_cast<int32_t>(tensor.size(d));
    }
    current = args;
    int32_t failed = run(reinterpret_cast<int64_t>(handle) - 1, static_cast<int32_t>(args.size()), tensors.data(),
                         context.event_tracer());
    current = {};
    return failed ? et::Error::DelegateInvalidHandle : et::Error::Ok;
  }

  void destroy(et::DelegateHandle* handle) const override { end(reinterpret_cast<int64_t>(handle) - 1); }

  static thread_local et::Span<et::EValue*> current;
};

thread_local et::Span<et::EValue*> Backend::current{};
Backend backend;

}  // namespace

extern "C" {

// 0 where hexforge answers from now on; 1 where another backend of the name was there first.
__attribute__((visibility("default"))) int32_t hexforge_register(HexforgeInit start, HexforgeExecute run,
                                                                 HexforgeDestroy end) {
  et::BackendInterface* known = et::get_backend_class("QnnBackend");
  if (known != nullptr && known != &backend) return 1;
  backend.start = start;
  backend.run = run;
  backend.end = end;
  if (known == &backend) return 0;
  return et::register_backend({"QnnBackend", &backend}) == et::Error::Ok ? 0 : 2;
}

// Gives an argument of the call in progress other sizes; 0 where it may have them.
__attribute__((visibility("default"))) int32_t hexforge_resize(int32_t argument, const int32_t* sizes) {
  if (argument < 0 || static_cast<size_t>(argument) >= Backend::current.size()) return 1;
  auto& tensor = Backend::current[argument]->toTensor();
  return et::resize_tensor(tensor, {sizes, static_cast<size_t>(tensor.dim())}) == et::Error::Ok ? 0 : 1;
}

// Tells ExecuTorch's event tracer of something within a delegate.
__attribute__((visibility("default"))) void hexforge_log(void* tracer, const char* name, uint64_t start, uint64_t end) {
  et::event_tracer_log_profiling_delegate(static_cast<et::EventTracer*>(tracer), name,
                                          static_cast<et::DebugHandle>(-1), start, end);
}
}
