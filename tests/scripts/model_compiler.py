sess_options = onnxruntime.SessionOptions()
sess_options.add_provider("SomeExecutionProvider", {"option1": "value1"})
# Alternatively, allow ONNX Runtime to select the provider automatically given a policy:
# sess_options.set_provider_selection_policy(onnxrt.OrtExecutionProviderDevicePolicy.PREFER_NPU)

model_compiler = onnxruntime.ModelCompiler(sess_options, "input_model.onnx")
model_compiler.compile_to_file("output_model.onnx")
