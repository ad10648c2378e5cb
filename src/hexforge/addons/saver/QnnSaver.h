// SPDX-License-Identifier: Apache-2.0
// The QNN calls of a recording (saver_output.c), by their public names, as functions that replay it with hexforge.
//
//     cc saver_output.c -o replay && ./replay
//
// In the folder of the recording: the calls that the program makes are written into the folder `replayed`, or the one
// that its argument names, and `hexforge replay` runs them there; the variable HEXFORGE names another command, or none
// where it is empty. The program may be changed first: calls left out, made in a loop, with other arguments.
#ifndef HEXFORGE_QNN_SAVER_H
#define HEXFORGE_QNN_SAVER_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#ifndef QNNTYPES_H  // a recording has this file alone beside it
typedef enum {
  QNN_TENSOR_TYPE_APP_WRITE = 0,
  QNN_TENSOR_TYPE_APP_READ = 1,
  QNN_TENSOR_TYPE_APP_READWRITE = 2,
  QNN_TENSOR_TYPE_NATIVE = 3,
  QNN_TENSOR_TYPE_STATIC = 4,
  QNN_TENSOR_TYPE_NULL = 5
} Qnn_TensorType_t;
#endif

// Parameters, options and the tensors of an execution: a JSON text.
typedef struct {
  const char* text;
} QnnSaver_Json;
#define QNN_JSON(text) ((QnnSaver_Json){text})

// Names of tensors, NULL for one that is left out.
typedef struct {
  const char* const* names;
  size_t count;
} QnnSaver_Names;
#define QNN_NAMES(...)                                  \
  ((QnnSaver_Names){(const char* const[]){__VA_ARGS__}, \
                    sizeof((const char* const[]){__VA_ARGS__}) / sizeof(const char*)})
#define QNN_NO_NAMES ((QnnSaver_Names){NULL, 0})

// Bytes of params.bin.
typedef struct {
  unsigned long long offset, size;
  int given;
} QnnSaver_Data;
#define QNN_DATA(offset, size) ((QnnSaver_Data){offset, size, 1})
#define QNN_NO_DATA ((QnnSaver_Data){0, 0, 0})

static FILE* qnnsaver_out;
static char qnnsaver_folder[3072];
static unsigned long long qnnsaver_bytes;

static inline void qnnsaver_fail(const char* what, const char* name) {
  fprintf(stderr, "saver_output: %s %s\n", what, name);
  exit(1);
}

static inline void qnnsaver_begin_call(const char* name) { fprintf(qnnsaver_out, "  %s(", name); }
static inline void qnnsaver_end_call(void) { fputs(");\n", qnnsaver_out); }
static inline void qnnsaver_comma(void) { fputs(", ", qnnsaver_out); }

static inline void qnnsaver_text(const char* text) {
  const unsigned char* at = (const unsigned char*)text;
  fputc('"', qnnsaver_out);
  for (; *at; ++at) {
    if (*at == '"' || *at == '\\') {
      fprintf(qnnsaver_out, "\\%c", *at);
    } else if (*at < 32 || *at > 126) {
      fprintf(qnnsaver_out, "\\%03o", *at);
    } else {
      fputc(*at, qnnsaver_out);
    }
  }
  fputc('"', qnnsaver_out);
}

static inline void qnnsaver_json(QnnSaver_Json json) {
  fputs("QNN_JSON(", qnnsaver_out);
  qnnsaver_text(json.text);
  fputc(')', qnnsaver_out);
}

static inline void qnnsaver_names(QnnSaver_Names names) {
  size_t i;
  if (!names.count) {
    fputs("QNN_NO_NAMES", qnnsaver_out);
    return;
  }
  fputs("QNN_NAMES(", qnnsaver_out);
  for (i = 0; i < names.count; ++i) {
    if (i) qnnsaver_comma();
    if (names.names[i]) {
      qnnsaver_text(names.names[i]);
    } else {
      fputs("NULL", qnnsaver_out);
    }
  }
  fputc(')', qnnsaver_out);
}

static inline void qnnsaver_data(QnnSaver_Data data) {
  if (!data.given) {
    fputs("QNN_NO_DATA", qnnsaver_out);
    return;
  }
  if (data.offset > qnnsaver_bytes || data.size > qnnsaver_bytes - data.offset)
    qnnsaver_fail("a tensor's bytes are beyond the end of", "params.bin");
  fprintf(qnnsaver_out, "QNN_DATA(%llu, %llu)", data.offset, data.size);
}

static inline void QnnBackend_create(const char* backend, QnnSaver_Json options) {
  qnnsaver_begin_call("QnnBackend_create");
  qnnsaver_text(backend);
  qnnsaver_comma();
  qnnsaver_json(options);
  qnnsaver_end_call();
}

static inline void QnnContext_create(const char* context) {
  qnnsaver_begin_call("QnnContext_create");
  qnnsaver_text(context);
  qnnsaver_end_call();
}

static inline void QnnGraph_create(const char* context, const char* graph, const char* name) {
  qnnsaver_begin_call("QnnGraph_create");
  qnnsaver_text(context);
  qnnsaver_comma();
  qnnsaver_text(graph);
  qnnsaver_comma();
  qnnsaver_text(name);
  qnnsaver_end_call();
}

// `kind` is the tensor's data type, dimensions and encoding, as `hexforge show` writes them.
static inline void QnnTensor_createGraphTensor(const char* graph, const char* name, Qnn_TensorType_t type,
                                               const char* kind, QnnSaver_Data data) {
  static const char* const types[] = {"APP_WRITE", "APP_READ", "APP_READWRITE", "NATIVE", "STATIC", "NULL"};
  if ((unsigned)type > QNN_TENSOR_TYPE_NULL) qnnsaver_fail("there is no such type for tensor", name);
  qnnsaver_begin_call("QnnTensor_createGraphTensor");
  qnnsaver_text(graph);
  qnnsaver_comma();
  qnnsaver_text(name);
  fprintf(qnnsaver_out, ", QNN_TENSOR_TYPE_%s, ", types[type]);
  qnnsaver_text(kind);
  qnnsaver_comma();
  qnnsaver_data(data);
  qnnsaver_end_call();
}

static inline void QnnGraph_addNode(const char* graph, const char* name, const char* package, const char* op,
                                    QnnSaver_Json params, QnnSaver_Names inputs, QnnSaver_Names outputs) {
  qnnsaver_begin_call("QnnGraph_addNode");
  qnnsaver_text(graph);
  qnnsaver_comma();
  qnnsaver_text(name);
  qnnsaver_comma();
  qnnsaver_text(package);
  qnnsaver_comma();
  qnnsaver_text(op);
  qnnsaver_comma();
  qnnsaver_json(params);
  qnnsaver_comma();
  qnnsaver_names(inputs);
  qnnsaver_comma();
  qnnsaver_names(outputs);
  qnnsaver_end_call();
}

static inline void QnnGraph_finalize(const char* graph) {
  qnnsaver_begin_call("QnnGraph_finalize");
  qnnsaver_text(graph);
  qnnsaver_end_call();
}

static inline void QnnGraph_execute(const char* graph, QnnSaver_Json inputs, QnnSaver_Json outputs) {
  qnnsaver_begin_call("QnnGraph_execute");
  qnnsaver_text(graph);
  qnnsaver_comma();
  qnnsaver_json(inputs);
  qnnsaver_comma();
  qnnsaver_json(outputs);
  qnnsaver_end_call();
}

static inline FILE* qnnsaver_open(const char* name, const char* mode) {
  char path[4096];
  FILE* file;
  snprintf(path, sizeof path, "%s/%s", qnnsaver_folder, name);
  file = fopen(path, mode);
  if (!file) qnnsaver_fail("cannot write", path);
  return file;
}

// The folder for the calls, with a copy of params.bin.
static inline void QnnSaver_begin(int argc, char** argv) {
  char buffer[1 << 16];
  size_t count;
  FILE *from, *to;
  const char* folder = argc > 1 ? argv[1] : "replayed";
  if (strlen(folder) >= sizeof qnnsaver_folder) qnnsaver_fail("too long a name:", folder);
  strcpy(qnnsaver_folder, folder);
  mkdir(qnnsaver_folder, 0777);
  from = fopen("params.bin", "rb");
  if (!from) qnnsaver_fail("run it in the folder of its recording: there is no", "params.bin");
  to = qnnsaver_open("params.bin", "wb");
  while ((count = fread(buffer, 1, sizeof buffer, from)) > 0) {
    if (fwrite(buffer, 1, count, to) != count) qnnsaver_fail("cannot write", "params.bin");
    qnnsaver_bytes += count;
  }
  fclose(from);
  if (fclose(to)) qnnsaver_fail("cannot write", "params.bin");
  qnnsaver_out = qnnsaver_open("saver_output.c", "w");
  fputs(
      "// QNN calls recorded by hexforge, version 2; `cc saver_output.c -o replay && ./replay` makes them again.\n"
      "#include \"QnnSaver.h\"\nint main(int argc, char** argv) {\n  QnnSaver_begin(argc, argv);\n",
      qnnsaver_out);
}

// Ends the calls and replays them; the status of that.
static inline int QnnSaver_end(void) {
  char line[4096];
  const char* command = getenv("HEXFORGE");
  fputs("  return QnnSaver_end();\n}\n", qnnsaver_out);
  if (fclose(qnnsaver_out)) qnnsaver_fail("cannot write", "saver_output.c");
  if (!command) command = "hexforge";
  if (!*command) return 0;
  if (snprintf(line, sizeof line, "%s replay \"%s\"", command, qnnsaver_folder) >= (int)sizeof line)
    qnnsaver_fail("too long a command:", command);
  return system(line) ? 1 : 0;
}

#endif
