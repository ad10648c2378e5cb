// SPDX-License-Identifier: Apache-2.0
// onnxruntime's QNN execution provider in C, over hexforge's library: what provider.cpp does, with onnxruntime's C API.
//
//   provider PLUGIN BACKEND MODEL INPUT OUTPUT [CONTEXT]
#include <onnxruntime_c_api.h>
#include <onnxruntime_session_options_config_keys.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_DEVICES 16
#define MOST_AXES 8
#define MOST_BYTES (1 << 24)

static const OrtApi* g_ort;

static void check(OrtStatus* status) {
  if (!status) return;
  fprintf(stderr, "%s\n", g_ort->GetErrorMessage(status));
  g_ort->ReleaseStatus(status);
  exit(1);
}

// The provider's devices among all that onnxruntime knows.
static size_t devices_of_provider(OrtEnv* env, const OrtEpDevice** chosen) {
  const OrtEpDevice* const* devices;
  size_t count, found = 0;
  check(g_ort->GetEpDevices(env, &devices, &count));
  for (size_t i = 0; i < count && found < MOST_DEVICES; ++i)
    if (strcmp(g_ort->EpDevice_EpName(devices[i]), "QNNExecutionProvider") == 0) chosen[found++] = devices[i];
  return found;
}

int main(int argc, char** given) {
  if (argc != 6 && argc != 7) {
    fprintf(stderr, "usage: provider PLUGIN BACKEND MODEL INPUT OUTPUT [CONTEXT]\n");
    return 2;
  }
  g_ort = OrtGetApiBase()->GetApi(ORT_API_VERSION);
  if (!g_ort) {
    fprintf(stderr, "onnxruntime %s is older than the headers\n", OrtGetApiBase()->GetVersionString());
    return 1;
  }
  OrtEnv* env;
  check(g_ort->CreateEnv(ORT_LOGGING_LEVEL_ERROR, "Default", &env));
  check(g_ort->RegisterExecutionProviderLibrary(env, "QNNExecutionProvider", given[1]));

  OrtSessionOptions* session_options;
  check(g_ort->CreateSessionOptions(&session_options));
  check(g_ort->AddSessionConfigEntry(session_options, kOrtSessionOptionsDisableCPUEPFallback, "1"));
  if (argc == 7) {
    check(g_ort->AddSessionConfigEntry(session_options, kOrtSessionOptionEpContextEnable, "1"));
    check(g_ort->AddSessionConfigEntry(session_options, kOrtSessionOptionEpContextFilePath, given[6]));
    check(g_ort->AddSessionConfigEntry(session_options, kOrtSessionOptionEpContextEmbedMode, "1"));
  }
  const OrtEpDevice* devices[MOST_DEVICES];
  const char* keys[] = {"backend_path", "soc_model"};
  const char* values[] = {given[2], "60"};
  check(g_ort->SessionOptionsAppendExecutionProvider_V2(session_options, env, devices,
                                                        devices_of_provider(env, devices), keys, values, 2));
  OrtSession* session;
  check(g_ort->CreateSession(env, given[3], session_options, &session));

  OrtAllocator* allocator;
  char *input_name, *output_name;
  check(g_ort->GetAllocatorWithDefaultOptions(&allocator));
  check(g_ort->SessionGetInputName(session, 0, allocator, &input_name));
  check(g_ort->SessionGetOutputName(session, 0, allocator, &output_name));
  OrtTypeInfo* type;
  const OrtTensorTypeAndShapeInfo* of_input;
  int64_t shape[MOST_AXES];
  size_t axes;
  check(g_ort->SessionGetInputTypeInfo(session, 0, &type));
  check(g_ort->CastTypeInfoToTensorInfo(type, &of_input));
  check(g_ort->GetDimensionsCount(of_input, &axes));
  if (axes > MOST_AXES) return 1;
  check(g_ort->GetDimensions(of_input, shape, axes));

  char* data = malloc(MOST_BYTES);
  FILE* file = fopen(given[4], "rb");
  if (!data || !file) return 1;
  const size_t bytes = fread(data, 1, MOST_BYTES, file);
  fclose(file);
  OrtMemoryInfo* memory;
  OrtValue *input, *output = NULL;
  check(g_ort->CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &memory));
  check(g_ort->CreateTensorWithDataAsOrtValue(memory, data, bytes, shape, axes, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT,
                                              &input));
  const char* inputs[] = {input_name};
  const char* outputs[] = {output_name};
  check(g_ort->Run(session, NULL, inputs, (const OrtValue* const*)&input, 1, outputs, 1, &output));

  OrtTensorTypeAndShapeInfo* of_output;
  size_t elements;
  void* made;
  check(g_ort->GetTensorTypeAndShape(output, &of_output));
  check(g_ort->GetTensorShapeElementCount(of_output, &elements));
  check(g_ort->GetTensorMutableData(output, &made));
  file = fopen(given[5], "wb");
  if (!file || fwrite(made, sizeof(float), elements, file) != elements || fclose(file)) return 1;

  g_ort->ReleaseTensorTypeAndShapeInfo(of_output);
  g_ort->ReleaseValue(output);
  g_ort->ReleaseValue(input);
  g_ort->ReleaseMemoryInfo(memory);
  g_ort->ReleaseTypeInfo(type);
  check(g_ort->AllocatorFree(allocator, input_name));
  check(g_ort->AllocatorFree(allocator, output_name));
  g_ort->ReleaseSession(session);
  g_ort->ReleaseSessionOptions(session_options);
  g_ort->ReleaseEnv(env);
  free(data);
  return 0;
}
