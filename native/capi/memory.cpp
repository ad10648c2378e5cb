// SPDX-License-Identifier: Apache-2.0
// QnnMem: memory of the program that tensors lie in, given by a file descriptor or by an address.
#include <algorithm>

#include "HTP/QnnHtpMem.h"
#include "capi/functions.h"
#include "capi/simulated/context.h"
#include "capi/system_calls/system_calls.h"
#include "capi/tensors.h"

namespace hexforge::capi {
namespace {

std::uint64_t tensor_bytes(const Qnn_MemDescriptor_t& given) {
  const std::uint32_t element = element_bytes(given.dataType);
  if (!element)
    throw Failure(QNN_MEM_ERROR_INVALID_ARGUMENT, "data type " + std::to_string(given.dataType) + " is not known");
  if (given.memShape.numDim > 32 || (given.memShape.numDim && !given.memShape.dimSize))
    throw Failure(QNN_MEM_ERROR_INVALID_SHAPE, "the memory has no dimensions");
  std::uint64_t bytes = element;
  for (std::uint32_t i = 0; i < given.memShape.numDim; ++i) {
    const std::uint32_t size = given.memShape.dimSize[i];
    if (size && bytes > (std::uint64_t{1} << 40) / size)
      throw Failure(QNN_MEM_ERROR_INVALID_SHAPE, "the memory is too large");
    bytes *= size;
  }
  return bytes;
}

constexpr std::int64_t kFirstFile = std::int64_t{1} << 40;  // buffers by file descriptors have numbers from here on

std::uint64_t next_memory() {
  static std::atomic<std::uint64_t> number{0};
  return ++number;
}

void map(Memory& memory, int fd, std::uint64_t offset) {
  void* mapped = map_buffer(fd, offset, memory.bytes);
  memory.mapped = mapped;
  memory.mapped_bytes = offset + memory.bytes;
  memory.data = static_cast<char*>(mapped) + offset;
}

}  // namespace

Memory::~Memory() {
  if (mapped) unmap_buffer(mapped, mapped_bytes);
}

Qnn_ErrorHandle_t mem_register(Qnn_ContextHandle_t handle, const Qnn_MemDescriptor_t* descriptors, std::uint32_t count,
                               Qnn_MemHandle_t* handles) {
  std::shared_ptr<Context> context;
  return guarded(
      "QnnMem_register", [&] { return context ? context->backend->logger : nullptr; },
      [&] {
        context = context_of(handle);
        if (!count) throw Failure(QNN_MEM_ERROR_INVALID_ARGUMENT, "there are no descriptors");
        required(descriptors, QNN_MEM_ERROR_INVALID_ARGUMENT, "memDescriptors");
        required(handles, QNN_MEM_ERROR_INVALID_ARGUMENT, "memHandles");
        std::vector<std::shared_ptr<Memory>> made;
        for (std::uint32_t i = 0; i < count; ++i) {
          const Qnn_MemDescriptor_t& given = descriptors[i];
          auto memory = std::make_shared<Memory>();
          memory->context = context;
          memory->bytes = memory->buffer_bytes = tensor_bytes(given);
          memory->buffer = static_cast<std::int64_t>(memory->number = next_memory());
          switch (given.memType) {
            case QNN_MEM_TYPE_ION: map(*memory, given.ionInfo.fd, 0); break;
            case QNN_MEM_TYPE_DMA_BUF:
              if (given.dmaBufInfo.data) {
                memory->data = given.dmaBufInfo.data;
              } else {
                map(*memory, given.dmaBufInfo.fd, 0);
              }
              break;
            case QNN_MEM_TYPE_CUSTOM: {
              const auto* own = static_cast<const QnnMemHtp_Descriptor_t*>(given.customInfo);
              required(own, QNN_MEM_ERROR_INVALID_ARGUMENT, "customInfo");
              if (own->type != QNN_HTP_MEM_SHARED_BUFFER)
                throw Failure(QNN_MEM_ERROR_UNSUPPORTED_MEMTYPE, "only shared buffers of the HTP are known");
              map(*memory, own->sharedBufferConfig.fd, own->sharedBufferConfig.offset);
              memory->buffer = kFirstFile + own->sharedBufferConfig.fd;  // several tensors may lie in it
              memory->offset = own->sharedBufferConfig.offset;
              memory->buffer_bytes = std::max(own->size, memory->offset + memory->bytes);
              break;
            }
            default:
              throw Failure(QNN_MEM_ERROR_UNSUPPORTED_MEMTYPE,
                            "memory type " + std::to_string(given.memType) + " is not known");
          }
          made.push_back(std::move(memory));
        }
        const std::vector<std::int64_t> on_device = register_on_device(*context, made);
        std::lock_guard lock(context->mutex);
        for (std::uint32_t i = 0; i < count; ++i) {
          made[i]->on_device = on_device[i];
          handles[i] = Handles::all().add(made[i]);
          context->memories.push_back(handles[i]);
        }
      });
}

Qnn_ErrorHandle_t mem_de_register(const Qnn_MemHandle_t* handles, std::uint32_t count) {
  return guarded("QnnMem_deRegister", no_logger, [&] {
    required(handles, QNN_MEM_ERROR_INVALID_ARGUMENT, "memHandles");
    for (std::uint32_t i = 0; i < count; ++i)
      if (!Handles::all().find<Memory>(handles[i]))
        throw Failure(QNN_MEM_ERROR_INVALID_HANDLE, "there is no such memory");
    for (std::uint32_t i = 0; i < count; ++i)
      if (const auto memory = Handles::all().take<Memory>(handles[i]))
        if (const auto context = memory->context.lock()) {
          if (memory->on_device) deregister_on_device(*context, {memory->on_device});
          std::lock_guard lock(context->mutex);
          std::erase(context->memories, handles[i]);
        }
  });
}

}  // namespace hexforge::capi
