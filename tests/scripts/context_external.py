# Python
import onnxruntime

options = onnxruntime.SessionOptions()
options.add_session_config_entry("ep.context_enable", "1")

# Python
options.add_session_config_entry("ep.context_file_path", "./model_a_ctx.onnx")

# Python
options.add_session_config_entry("ep.context_embed_mode", "0")
