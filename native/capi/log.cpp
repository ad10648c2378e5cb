// SPDX-License-Identifier: Apache-2.0
// QnnLog, QnnError and QnnProperty.
#include <cstdlib>
#include <cstring>

#include "capi/functions.h"

namespace hexforge::capi {

std::shared_ptr<Logger> no_logger() { return nullptr; }

Qnn_ErrorHandle_t log_create(QnnLog_Callback_t callback, QnnLog_Level_t level, Qnn_LogHandle_t* logger) {
  return guarded("QnnLog_create", no_logger, [&] {
    required(logger, QNN_LOG_ERROR_INVALID_ARGUMENT, "logger");
    if (level < QNN_LOG_LEVEL_ERROR) throw Failure(QNN_LOG_ERROR_INVALID_ARGUMENT, "there is no level below ERROR");
    *logger = Handles::all().add(std::make_shared<Logger>(callback, level));
  });
}

Qnn_ErrorHandle_t log_set_log_level(Qnn_LogHandle_t logger, QnnLog_Level_t level) {
  return guarded("QnnLog_setLogLevel", no_logger, [&] {
    const auto found = Handles::all().find<Logger>(logger);
    if (!found) throw Failure(QNN_LOG_ERROR_INVALID_HANDLE, "there is no such logger");
    if (level < QNN_LOG_LEVEL_ERROR) throw Failure(QNN_LOG_ERROR_INVALID_ARGUMENT, "there is no level below ERROR");
    found->set_level(level);
  });
}

Qnn_ErrorHandle_t log_free(Qnn_LogHandle_t logger) {
  return guarded("QnnLog_free", no_logger, [&] {
    if (!Handles::all().take<Logger>(logger)) throw Failure(QNN_LOG_ERROR_INVALID_HANDLE, "there is no such logger");
  });
}

Qnn_ErrorHandle_t error_get_message(Qnn_ErrorHandle_t code, const char** message) {
  return guarded("QnnError_getMessage", no_logger, [&] {
    required(message, QNN_ERROR_INVALID_ARGUMENT, "errorMessage");
    const char* text = code_text(code);
    if (!text) throw Failure(QNN_ERROR_INVALID_ERROR_HANDLE, "there is no code " + std::to_string(code));
    *message = text;
  });
}

Qnn_ErrorHandle_t error_get_verbose_message(Qnn_ErrorHandle_t code, const char** message) {
  return guarded("QnnError_getVerboseMessage", no_logger, [&] {
    required(message, QNN_ERROR_INVALID_ARGUMENT, "errorMessage");
    const char* text = code_text(code);
    if (!text) throw Failure(QNN_ERROR_INVALID_ERROR_HANDLE, "there is no code " + std::to_string(code));
    std::string whole = last_message(code);
    if (whole.empty()) whole = text;
    char* copy = static_cast<char*>(std::malloc(whole.size() + 1));
    if (!copy) throw std::bad_alloc();
    std::memcpy(copy, whole.c_str(), whole.size() + 1);
    *message = copy;
  });
}

Qnn_ErrorHandle_t error_free_verbose_message(const char* message) {
  std::free(const_cast<char*>(message));
  return QNN_SUCCESS;
}

// Keys are numbered in groups; those that clients ask for are in QnnProperty.h.
Qnn_ErrorHandle_t property_has_capability(const Library& library, QnnProperty_Key_t key) {
  if (key == QNN_PROPERTY_GROUP_DEVICE)
    return library.id == QNN_BACKEND_ID_HTP ? QNN_PROPERTY_SUPPORTED : QNN_PROPERTY_NOT_SUPPORTED;
  switch (key) {
    case QNN_PROPERTY_PROFILE_SUPPORTS_EXTENDED_EVENT:
    case QNN_PROPERTY_GRAPH_SUPPORT_ASYNC_EXECUTION:
    case QNN_PROPERTY_CONTEXT_SUPPORT_CACHING:
    case QNN_PROPERTY_CONTEXT_SUPPORT_BINARY_UPDATES:
    case QNN_PROPERTY_CONTEXT_SUPPORT_CREATE_FROM_BINARY_LIST_ASYNC:
    case QNN_PROPERTY_GROUP_MEMORY:
    case QNN_PROPERTY_GROUP_SIGNAL: return QNN_PROPERTY_SUPPORTED;
    case QNN_PROPERTY_TENSOR_SUPPORT_DYNAMIC_DIMENSIONS:
    case QNN_PROPERTY_TENSOR_SUPPORT_SPARSITY:
    case QNN_PROPERTY_TENSOR_SUPPORT_UPDATEABLE_STATIC_TENSORS:
    case QNN_PROPERTY_GRAPH_SUPPORT_EARLY_TERMINATION:
    case QNN_PROPERTY_GRAPH_SUPPORT_FINALIZE_DESERIALIZED_GRAPH:
    case QNN_PROPERTY_GRAPH_SUPPORT_SUBGRAPH:
    case QNN_PROPERTY_PROFILE_SUPPORT_MAX_EVENTS_CONFIG:
    case QNN_PROPERTY_PROFILE_SUPPORT_OPTRACE_CONFIG: return QNN_PROPERTY_NOT_SUPPORTED;
    default: break;
  }
  return QNN_PROPERTY_ERROR_UNKNOWN_KEY;
}

}  // namespace hexforge::capi
