# SPDX-License-Identifier: Apache-2.0
"""Programs whose calls fail: what they do not bear is named by its call."""

from __future__ import annotations

from pathlib import Path

from hexforge.addons.capi.chaos import chaos
from tests.addons.capi.conftest import Compile

SOURCE = """
#include <dlfcn.h>
#include <stdio.h>
#include "QnnInterface.h"
int main(int argc, char** argv) {
  const QnnInterface_t** providers;
  uint32_t count;
  Qnn_BackendHandle_t backend = NULL;
  Qnn_DeviceHandle_t device = NULL;
  Qnn_ErrorHandle_t (*get)(const QnnInterface_t***, uint32_t*);
  *(void**)&get = dlsym(dlopen("libQnnHtp.so", RTLD_NOW), "QnnInterface_getProviders");
  if (argc != 1 || !argv || get(&providers, &count)) return 2;
  if (providers[0]->v2_40.backendCreate(NULL, NULL, &backend)) return 1;
  if (providers[0]->v2_40.deviceCreate(NULL, NULL, &device)) return 1;  // the backend is never freed
  providers[0]->v2_40.deviceFree(device);
  providers[0]->v2_40.backendFree(backend);
  return 0;
}
"""


def test_a_call_whose_failure_is_not_borne_is_named(compile_c: Compile, tmp_path: Path) -> None:
    source = tmp_path / "program.c"
    source.write_text(SOURCE.replace("v2_40", "QNN_INTERFACE_VER_NAME"))
    tried = list(chaos([str(compile_c(source))]))
    assert {call for call, *_ in tried} == {"QnnBackend_create", "QnnDevice_create"}
    found = [finding for *_, finding in tried if finding is not None]
    assert {(finding.call, finding.verdict) for finding in found} == {("QnnDevice_create", "leak")}
