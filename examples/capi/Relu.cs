// SPDX-License-Identifier: Apache-2.0
// QNN's C API from C#: the table of functions by P/Invoke, structures with their layouts. Builds y = relu(x) and runs it.
//     mcs Relu.cs && LD_LIBRARY_PATH=$(hexforge lib-path) mono Relu.exe
using System;
using System.Runtime.InteropServices;

static class Relu
{
    [DllImport("libQnnHtp.so")]
    static extern ulong QnnInterface_getProviders(out IntPtr providerList, out uint numProviders);

    [StructLayout(LayoutKind.Explicit, Size = 144)]
    struct Tensor  // Qnn_Tensor_t, version 1
    {
        [FieldOffset(0)] public uint version;
        [FieldOffset(8)] public uint id;
        [FieldOffset(16)] public IntPtr name;
        [FieldOffset(24)] public uint type;
        [FieldOffset(28)] public uint dataFormat;
        [FieldOffset(32)] public uint dataType;
        [FieldOffset(40)] public uint encodingDefinition;
        [FieldOffset(44)] public uint quantizationEncoding;
        [FieldOffset(80)] public uint rank;
        [FieldOffset(88)] public IntPtr dimensions;
        [FieldOffset(96)] public uint memType;
        [FieldOffset(104)] public IntPtr data;
        [FieldOffset(112)] public uint dataSize;
    }

    [StructLayout(LayoutKind.Sequential)]
    struct OpConfig  // Qnn_OpConfig_t, version 1
    {
        public uint version;
        public IntPtr name, packageName, typeName;
        public uint numOfParams;
        public IntPtr parameters;
        public uint numOfInputs;
        public IntPtr inputTensors;
        public uint numOfOutputs;
        public IntPtr outputTensors;
    }

    // Functions by their place in the table, which begins at byte 40 of QnnInterface_t.
    enum Function { BackendCreate = 1, BackendFree = 8, ContextCreate = 9, ContextFree = 14, GraphCreate = 15,
                    GraphAddNode = 18, GraphFinalize = 19, GraphExecute = 21, TensorCreateGraphTensor = 24 }
    delegate ulong BackendCreate(IntPtr logger, IntPtr config, out IntPtr backend);
    delegate ulong ContextCreate(IntPtr backend, IntPtr device, IntPtr config, out IntPtr context);
    delegate ulong GraphCreate(IntPtr context, IntPtr name, IntPtr config, out IntPtr graph);
    delegate ulong CreateGraphTensor(IntPtr graph, ref Tensor tensor);
    delegate ulong AddNode(IntPtr graph, OpConfig op);
    delegate ulong Finalize(IntPtr graph, IntPtr profile, IntPtr signal);
    delegate ulong Execute(IntPtr graph, ref Tensor inputs, uint numInputs, ref Tensor outputs, uint numOutputs,
                           IntPtr profile, IntPtr signal);
    delegate ulong ContextFree(IntPtr context, IntPtr profile);
    delegate ulong Free(IntPtr handle);

    static IntPtr table;
    static T Get<T>(Function function)
    {
        IntPtr address = Marshal.ReadIntPtr(table, 40 + 8 * (int)function);
        return (T)(object)Marshal.GetDelegateForFunctionPointer(address, typeof(T));
    }
    static void Check(string call, ulong code)
    {
        if (code != 0) throw new Exception(call + ": error " + code);
    }

    const uint Undefined = 0x7FFFFFFF, Float32 = 0x0232;
    static readonly uint[] dimensions = { 1, 8 };
    static Tensor Make(string name, uint type, GCHandle sizes)
    {
        return new Tensor {
            version = 1, name = Marshal.StringToHGlobalAnsi(name), type = type, dataType = Float32,
            encodingDefinition = Undefined, quantizationEncoding = Undefined, rank = 2,
            dimensions = sizes.AddrOfPinnedObject(),
        };
    }
    static IntPtr Pinned(Tensor tensor)
    {
        IntPtr memory = Marshal.AllocHGlobal(144);
        Marshal.StructureToPtr(tensor, memory, false);
        return memory;
    }

    static int Main()
    {
        IntPtr list, backend, context, graph;
        uint count;
        Check("QnnInterface_getProviders", QnnInterface_getProviders(out list, out count));
        table = Marshal.ReadIntPtr(list);
        Check("QnnBackend_create", Get<BackendCreate>(Function.BackendCreate)(IntPtr.Zero, IntPtr.Zero, out backend));
        Check("QnnContext_create",
              Get<ContextCreate>(Function.ContextCreate)(backend, IntPtr.Zero, IntPtr.Zero, out context));
        IntPtr graphName = Marshal.StringToHGlobalAnsi("relu");
        Check("QnnGraph_create", Get<GraphCreate>(Function.GraphCreate)(context, graphName, IntPtr.Zero, out graph));

        GCHandle sizes = GCHandle.Alloc(dimensions, GCHandleType.Pinned);
        Tensor x = Make("x", 0, sizes), y = Make("y", 1, sizes);  // APP_WRITE, APP_READ
        var create = Get<CreateGraphTensor>(Function.TensorCreateGraphTensor);
        Check("QnnTensor_createGraphTensor", create(graph, ref x));
        Check("QnnTensor_createGraphTensor", create(graph, ref y));
        var op = new OpConfig {
            version = 1, name = graphName, packageName = Marshal.StringToHGlobalAnsi("qti.aisw"),
            typeName = Marshal.StringToHGlobalAnsi("Relu"), numOfInputs = 1, inputTensors = Pinned(x),
            numOfOutputs = 1, outputTensors = Pinned(y),
        };
        Check("QnnGraph_addNode", Get<AddNode>(Function.GraphAddNode)(graph, op));
        Check("QnnGraph_finalize", Get<Finalize>(Function.GraphFinalize)(graph, IntPtr.Zero, IntPtr.Zero));

        float[] given = { -4, -3, -2, -1, 0, 1, 2, 3 }, result = new float[8];
        GCHandle from = GCHandle.Alloc(given, GCHandleType.Pinned), to = GCHandle.Alloc(result, GCHandleType.Pinned);
        x.data = from.AddrOfPinnedObject();
        y.data = to.AddrOfPinnedObject();
        x.dataSize = y.dataSize = 32;
        Check("QnnGraph_execute",
              Get<Execute>(Function.GraphExecute)(graph, ref x, 1, ref y, 1, IntPtr.Zero, IntPtr.Zero));
        foreach (float each in result) Console.WriteLine(each);
        Check("QnnContext_free", Get<ContextFree>(Function.ContextFree)(context, IntPtr.Zero));
        Check("QnnBackend_free", Get<Free>(Function.BackendFree)(backend));
        return 0;
    }
}
