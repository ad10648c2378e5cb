// QNN calls recorded by hexforge, version 1: arguments are JSON, params.bin@offset:bytes are bytes there.
QnnBackend_create("htp", {});
QnnContext_create("context_0");
QnnGraph_create("context_0", "graph_0", "QNNExecutionProvider_QNNExecutionProvider_10425471450450776799_0_0");
QnnTensor_createGraphTensor("graph_0", "x", "QNN_TENSOR_TYPE_APP_WRITE", "float32[2, 3]");
QnnTensor_createGraphTensor("graph_0", "a", "QNN_TENSOR_TYPE_APP_READ", "float32[2, 3]");
QnnTensor_createGraphTensor("graph_0", "y", "QNN_TENSOR_TYPE_APP_READ", "float32[2, 3]");
QnnGraph_addNode("graph_0", "relu_Relu", "qti.aisw", "Relu", {}, ["x"], ["a"]);
QnnGraph_addNode("graph_0", "neg_ElementWiseNeg", "qti.aisw", "ElementWiseNeg", {}, ["a"], ["y"]);
QnnGraph_finalize("graph_0");
