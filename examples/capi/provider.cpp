// SPDX-License-Identifier: Apache-2.0
// onnxruntime's QNN execution provider in C++, over hexforge's library: the calls of its documentation.
//
//   provider PLUGIN BACKEND MODEL INPUT OUTPUT [CONTEXT]
//
// PLUGIN is the provider's library (onnxruntime_qnn.get_library_path()), BACKEND hexforge's libQnnHtp.so or
// libQnnGpu.so, INPUT and OUTPUT raw float32 of the model's only input and output. With CONTEXT the session writes the
// model with its compiled context there, beside running it. The headers are those of Debian's libonnxruntime-dev (`make
// vendor`).
#include <onnxruntime_cxx_api.h>
#include <onnxruntime_session_options_config_keys.h>

#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <unordered_map>
#include <vector>

namespace {

std::vector<float> read_floats(const char* path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  const auto* first = reinterpret_cast<const float*>(bytes.data());
  return {first, first + bytes.size() / sizeof(float)};
}

int run(char** given) {
  Ort::Env env = Ort::Env{ORT_LOGGING_LEVEL_ERROR, "Default"};
  env.RegisterExecutionProviderLibrary("QNNExecutionProvider", given[1]);
  std::vector<Ort::ConstEpDevice> devices;
  for (const auto& device : env.GetEpDevices())
    if (std::string(device.EpName()) == "QNNExecutionProvider") devices.push_back(device);

  std::unordered_map<std::string, std::string> qnn_options;
  qnn_options["backend_path"] = given[2];
  qnn_options["soc_model"] = "60";
  Ort::SessionOptions session_options;
  // A model that is not taken whole is an error.
  session_options.AddConfigEntry(kOrtSessionOptionsDisableCPUEPFallback, "1");
  if (given[6]) {
    session_options.AddConfigEntry(kOrtSessionOptionEpContextEnable, "1");
    session_options.AddConfigEntry(kOrtSessionOptionEpContextFilePath, given[6]);
    session_options.AddConfigEntry(kOrtSessionOptionEpContextEmbedMode, "1");
  }
  // An onnxruntime with the provider built in takes AppendExecutionProvider("QNN", qnn_options) instead; 2.x is a
  // plugin.
  session_options.AppendExecutionProvider_V2(env, devices, qnn_options);
  Ort::Session session(env, given[3], session_options);

  const Ort::AllocatorWithDefaultOptions allocator;
  const auto input_name = session.GetInputNameAllocated(0, allocator);
  const auto output_name = session.GetOutputNameAllocated(0, allocator);
  const auto shape = session.GetInputTypeInfo(0).GetTensorTypeAndShapeInfo().GetShape();
  std::vector<float> data = read_floats(given[4]);
  const auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
  const auto input = Ort::Value::CreateTensor<float>(memory, data.data(), data.size(), shape.data(), shape.size());
  const char* inputs[] = {input_name.get()};
  const char* outputs[] = {output_name.get()};
  const auto results = session.Run(Ort::RunOptions{}, inputs, &input, 1, outputs, 1);
  const auto count = results[0].GetTensorTypeAndShapeInfo().GetElementCount();
  std::ofstream file(given[5], std::ios::binary);
  file.write(reinterpret_cast<const char*>(results[0].GetTensorData<float>()),
             static_cast<std::streamsize>(count * sizeof(float)));
  return file ? 0 : 1;
}

}  // namespace

int main(int count, char** given) {
  if (count != 6 && count != 7) {
    std::cerr << "usage: provider PLUGIN BACKEND MODEL INPUT OUTPUT [CONTEXT]\n";
    return 2;
  }
  try {
    return run(given);
  } catch (const Ort::Exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
