// SPDX-License-Identifier: Apache-2.0
// A library of QNN by name: it exports what QNN's own does, and opens the common library beside it at the first call.
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#if defined(_WIN32)
#include <wchar.h>
#include <windows.h>
#define LIBRARY L"hexforge_qnn.dll"
#else
#include <dlfcn.h>
#if defined(__APPLE__)
#define LIBRARY "libhexforge_qnn.dylib"
#else
#define LIBRARY "libhexforge_qnn.so"
#endif
#endif

#include "System/QnnSystemInterface.h"
#include "QnnInterface.h"

#if defined(_WIN32)
static void* common_symbol(const char* name) {
  wchar_t path[4096];
  HMODULE library = NULL;
  const DWORD from_address = GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT;
  DWORD length = 0;
  if (GetModuleHandleExW(from_address, (LPCWSTR)(void*)common_symbol, &library))
    length = GetModuleFileNameW(library, path, 4096);
  while (length && path[length - 1] != L'\\') --length;
  if (!length || length + sizeof LIBRARY > 4096) return NULL;
  wcscpy(path + length, LIBRARY);
  library = LoadLibraryW(path);  // its threads outlive a client's FreeLibrary: it is never freed
  if (!library) {
    fprintf(stderr, "hexforge: %ls cannot be loaded: error %lu\n", path, GetLastError());
    return NULL;
  }
  return (void*)GetProcAddress(library, name);
}
#else
static void* common_symbol(const char* name) {
  char path[4096];
  const char* slash;
  Dl_info info;
  void* library;
  if (!dladdr((void*)common_symbol, &info) || !info.dli_fname) return NULL;
  slash = strrchr(info.dli_fname, '/');
  if (snprintf(path, sizeof path, "%.*s" LIBRARY, slash ? (int)(slash - info.dli_fname) + 1 : 0,
               info.dli_fname) >= (int)sizeof path)
    return NULL;
  library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);  // its threads outlive a client's dlclose
  if (!library) {
    fprintf(stderr, "hexforge: %s\n", dlerror());
    return NULL;
  }
  return dlsym(library, name);
}
#endif

#ifdef HEXFORGE_QNN_BACKEND
QNN_API Qnn_ErrorHandle_t QnnInterface_getProviders(const QnnInterface_t*** providerList, uint32_t* numProviders) {
  const QnnInterface_t** (*providers)(uint32_t, uint32_t*);
  if (!providerList || !numProviders) return QNN_COMMON_ERROR_INVALID_ARGUMENT;
  *(void**)&providers = common_symbol("hexforge_qnn_providers");
  if (!providers) return QNN_COMMON_ERROR_INCOMPATIBLE_BINARIES;
  *providerList = providers(HEXFORGE_QNN_BACKEND, numProviders);
  return *providerList ? QNN_SUCCESS : QNN_COMMON_ERROR_NOT_SUPPORTED;
}
#else
QNN_API Qnn_ErrorHandle_t QnnSystemInterface_getProviders(const QnnSystemInterface_t*** providerList,
                                                          uint32_t* numProviders) {
  const QnnSystemInterface_t** (*providers)(uint32_t*);
  if (!providerList || !numProviders) return QNN_COMMON_ERROR_INVALID_ARGUMENT;
  *(void**)&providers = common_symbol("hexforge_qnn_system_providers");
  if (!providers) return QNN_COMMON_ERROR_INCOMPATIBLE_BINARIES;
  *providerList = providers(numProviders);
  return QNN_SUCCESS;
}
#endif
