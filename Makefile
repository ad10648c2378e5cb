# make demo    install into .venv, check the built-in night-shot model, run it on new pictures, optimize it for a phone
# make test    formatting, lint, types, all tests (real models included); CI (.ci/run) runs odd-path and executorch-check after it
# make quick   lint, types and tests of what differs from main, in a minute; the rest is for make test
# make coverage  all tests, and the share of src's lines that they run; build/coverage has a page
# make odd-path  tests that meet paths, in a copy below a folder with a space and a letter outside ASCII
# make core-alone  the README's lines and tests of the core in a copy without add-ons; TESTS=tests runs all of the core's
# make wheel   a manylinux wheel into dist; make wheel-test installs it into an empty venv and runs the README's lines
# make release-check  what a release uploads: source archive and wheel, checked, and each installed into an empty venv
# make docs    writes docs/api.md, docs/options.md, docs/gpu_ops.md and docs/modules.md; make stubs src/hexforge/_native.pyi; tests say when they are out of date
# make site    the documentation site into build/site, by mkdocs-material; a broken link or anchor is an error
# make house   rooms and their sizes, imports between them, cycles, and the counts that say whether one idea has one place
# make tidy   clang-tidy over native/, a part of make test; make clang builds it with clang and runs the kernels' tests
# make sanitize  kernels, hostile contexts and QNN's C API under AddressSanitizer and UndefinedBehaviorSanitizer
# make arm64   a wheel for 64-bit ARM Linux by Debian's cross compiler, tried under QEMU: README's lines, models' bits, kernels' tests
# make four-doors  200 random scenarios through Python, device serve, C and a script: the same codes, numbers and log
# make windows  what runs contexts and QNN's C API, for 64-bit Windows by mingw-w64, tried under Wine: the same bytes
# make executorch  ExecuTorch into .venv-executorch, beside what .venv has; make executorch-check tests hexforge behind it,
#              make executorch-phone its scripts and debugger on virtual phones,
#              make executorch-test runs ExecuTorch's own tests on hexforge on JOBS processes (an hour on two cores; or
#              TESTS="CLASS CLASS.TEST"), goes on where it was stopped, and prints the table; TESTS="--adaptor wheel CLASS" by the
#              wheel's own compiled adaptor and runtime over libQnnHtp.so
# make gpu     kernels of the gpu backend on this computer's OpenCL device (PoCL where there is no GPU), and its figures
# make gpu-half  the same kernels computing in half, on Intel's OpenCL for processors, which has cl_khr_fp16 (x86-64 Linux)
# make litert  LiteRT's interpreter into .venv-litert, and every operator of .tflite files judged by it;
#              make litert-measured estimates .tflite files of the measured graphs beside what was measured (an hour)
# make small-llama  trains the language model that tests run (torch into .venv-torch; ten minutes); make genai installs
#              onnxruntime-genai and openai into .venv-genai: a bundle's ONNX model runs there, and its endpoint is asked
# make adb-clients  adbutils, pure-python-adb, adb-shell and Debian's adb into .venv-adb, tried over virtual phones
# make vendor  Qualcomm's package (onnxruntime-qnn) into .venv-vendor, for `hexforge deploy` and tests marked vendor, and
#              onnxruntime's headers from Debian's libonnxruntime-dev, for programs in C and C++ over it
# make bench   times, numbers and memory of the htp backend; with `make peers` before, next to OpenVINO and the vendor
# Needs Python >= 3.11 and a C++20 compiler; everything else is fetched into .venv, in the versions of constraints.txt.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q
INSTALL := $(PIP) install -c constraints.txt
JOBS ?= 2

CPP := $(shell find native -name '*.cpp' -o -name '*.h')
NATIVE := pyproject.toml constraints.txt CMakeLists.txt $(CPP)
SOURCES := $(NATIVE) $(shell find src -type f -not -name '*.pyc' -not -name '*.so')
# The editable install of `make test` serves the demo too; without it the demo installs the package as a user would.
INSTALLED := $(if $(wildcard $(VENV)/.dev),$(VENV)/.dev,$(VENV)/.user)

.PHONY: demo test quick house site coverage odd-path core-alone release-check four-doors lint types format stubs docs wheel wheel-test models conformance conformance-gpu peers vendor fuzz sanitize tidy clang arm64 windows cluster gpu gpu-half bench clean \
  executorch executorch-check executorch-phone executorch-test small-llama genai litert litert-measured adb-clients

demo: $(INSTALLED)
	@$(BIN)/hexforge demo

test: lint tidy types models
	@echo "tests: pytest on $(JOBS) processes"
	@$(BIN)/python -m pytest -n $(JOBS) --dist loadfile

quick: $(VENV)/.dev
	@JOBS=$(JOBS) $(BIN)/python -m tools.quick

house: $(VENV)/.dev
	@$(BIN)/python -m tools.house

# Processes that tests start are counted, too (patch = subprocess in pyproject.toml).
coverage: models
	@rm -rf build/coverage && mkdir -p build/coverage
	@$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --cov --cov-report=html --cov-report=json --cov-report=term:skip-covered \
	  > build/coverage/log.txt 2>&1 || { tail -40 build/coverage/log.txt; exit 1; }
	@tail -4 build/coverage/log.txt

odd-path: $(VENV)/.dev
	@$(BIN)/python -m tools.odd_path -n $(JOBS) --dist loadfile

core-alone: $(VENV)/.dev
	@$(BIN)/python -m tools.core_alone -n $(JOBS) --dist loadfile $(TESTS)

lint: $(VENV)/.dev
	@echo "lint: ruff, clang-format"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/clang-format --dry-run --Werror $(CPP)

types: $(VENV)/.dev
	@echo "types: mypy, strict in src"
	@$(BIN)/mypy

format: $(VENV)/.dev
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .
	@$(BIN)/clang-format -i $(CPP)

stubs: $(VENV)/.dev
	@$(BIN)/python -m nanobind.stubgen -q -m hexforge._native -o src/hexforge/_native.pyi
	@$(BIN)/ruff format -q src/hexforge/_native.pyi

docs: $(VENV)/.dev
	@$(BIN)/python -m docs.generate

# The site's generator has an environment of its own, which sees what .venv has: the gallery's pages are made by hexforge.
SITE_VENV := .venv-site
site: $(SITE_VENV)/.installed
	@NO_MKDOCS_2_WARNING=true $(SITE_VENV)/bin/python -m mkdocs build --strict --quiet

$(SITE_VENV)/.installed: $(VENV)/.dev
	@$(PYTHON) -m venv $(SITE_VENV)
	@echo "import site; site.addsitedir('$$($(BIN)/python -c 'import site; print(site.getsitepackages()[0])')')" \
	  > "$$($(SITE_VENV)/bin/python -c 'import site; print(site.getsitepackages()[0])')/hexforge_of_venv.pth"
	@$(SITE_VENV)/bin/python -m pip --disable-pip-version-check -q install mkdocs==1.6.1 mkdocs-material==9.8.1
	@touch $@

# auditwheel chooses the tag: the oldest manylinux whose C library has what this machine's compiler linked to.
wheel: $(VENV)/.dev
	@rm -rf build/wheel dist/*.whl
	@$(PIP) wheel . --no-deps -w build/wheel
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/auditwheel repair -w dist build/wheel/*.whl
	@$(BIN)/auditwheel show dist/*.whl

wheel-test: wheel
	@rm -rf build/wheel-venv && $(PYTHON) -m venv build/wheel-venv
	@CC=/bin/false CXX=/bin/false build/wheel-venv/bin/python -m pip --disable-pip-version-check -q install \
	  --only-binary :all: dist/*.whl
	@env -u PYTHONPATH build/wheel-venv/bin/python tests/wheel/run_readme.py README.md
	@env -u PYTHONPATH build/wheel-venv/bin/hexforge --version

# build makes the wheel out of the source archive, so both are whole; what is installed may read nothing of the checkout.
RELEASE := build/release
release-check: $(VENV)/.dev
	@rm -rf $(RELEASE) && $(PYTHON) -m venv $(RELEASE)/tools
	@$(RELEASE)/tools/bin/python -m pip --disable-pip-version-check -q install -c constraints.txt build twine
	@echo "release: python -m build"
	@$(RELEASE)/tools/bin/python -m build --outdir $(RELEASE)/dist . > $(RELEASE)/build.log 2>&1 || { tail -40 $(RELEASE)/build.log; exit 1; }
	@$(RELEASE)/tools/bin/python -m twine check --strict $(RELEASE)/dist/*
	@$(BIN)/python -m tools.release_contents $(RELEASE)/dist
	@for file in $(RELEASE)/dist/*; do \
	  echo "release: pip install $$(basename $$file)"; \
	  rm -rf $(RELEASE)/user && $(PYTHON) -m venv $(RELEASE)/user && \
	  $(RELEASE)/user/bin/python -m pip --disable-pip-version-check -q install $$file && \
	  env -u PYTHONPATH $(RELEASE)/user/bin/python tests/wheel/run_readme.py README.md && \
	  env -u PYTHONPATH $(RELEASE)/user/bin/hexforge --version || exit 1; done

models: $(VENV)/.dev
	@$(BIN)/python -m tests.models.fetch

conformance: $(VENV)/.dev
	@$(BIN)/python -m benchmarks.conformance --backend cpu
	@$(BIN)/python -m benchmarks.conformance --backend htp

# The same on this computer's OpenCL device, into docs/figures.md: what QNN's GPU has, and all that has a kernel here.
conformance-gpu: $(VENV)/.dev
	@$(BIN)/python -m benchmarks.conformance --backend gpu --write
	@$(BIN)/python -m benchmarks.conformance --backend gpu --option gpu_ops=any --write

# What bench compares with, where it is installed; the vendor's package has an environment of its own.
peers: $(VENV)/.dev
	@echo "peers: OpenVINO into $(VENV), onnxruntime-qnn into .venv-vendor"
	@$(PIP) install --no-deps openvino==2026.4.1
	@$(MAKE) --no-print-directory vendor

# Qualcomm's package in an environment of its own, where `hexforge vendor` and `hexforge deploy` find it.
vendor:
	@echo "vendor: onnxruntime-qnn into .venv-vendor"
	@$(PYTHON) -m venv .venv-vendor
	@.venv-vendor/bin/python -m pip --disable-pip-version-check -q install onnxruntime-qnn==2.7.0 onnxruntime==1.31.1
	-@.venv-vendor/bin/python -m tools.onnxruntime_headers .venv-vendor/include/onnxruntime

# Coverage-guided fuzzing of everything that reads untrusted files, RUNS inputs for each reader; then models by number,
# SECONDS_EACH for each kind: random ones beside onnxruntime, hostile names through every command on a terminal, and devices.
RUNS ?= 200000
SECONDS_EACH ?= 600
fuzz: $(VENV)/.dev
	@mkdir -p build
	@$(INSTALL) -e '.[fuzz]'
	@for target in container context steps step_wiring native_context adapter lora_config safetensors graph_text encodings_file recipe_text onnx_model profile_log profile_text pte_program ptd_file compile_spec gguf_file checkpoint_files peft_adapter bundle_description; do \
	  echo "fuzz: $$target"; $(BIN)/python -m fuzz $$target --runs $(RUNS) > build/fuzz-$$target.log 2>&1 || exit 1; \
	  grep -E 'DONE|number_of_executed_units' build/fuzz-$$target.log; done
	@for target in differential_float differential_qdq arbitrated_qdq odd_models hostile_names device_scenarios device_messages api_sequences damaged_tflite; do \
	  echo "fuzz: $$target"; $(BIN)/python -m fuzz $$target --seconds $(SECONDS_EACH) > build/fuzz-$$target.log 2>&1 \
	    || { grep seed build/fuzz-$$target.log; exit 1; }; tail -n 1 build/fuzz-$$target.log; done

# What a build of its own is configured with, beside its folder and options.
CONFIGURE = cmake -S . -DPython_EXECUTABLE="$(CURDIR)/$(BIN)/python" -DCMAKE_BUILD_TYPE=Release -DHEXFORGE_WERROR=ON \
  -Dnanobind_DIR="$$($(BIN)/python -m nanobind --cmake_dir)"

# Tests of such a build run without `site`, whose finder would take the module of the editable install instead.
SITE = $$($(BIN)/python -c 'import site; print(site.getsitepackages()[0])')
BUILT_IN = from hexforge import _native; assert \"$(1)\" in _native.__file__, _native.__file__

# clang-tidy over native/, about 45 s of one core; .clang-tidy has the checks.
tidy: $(VENV)/.dev
	@echo "lint: clang-tidy"
	@mkdir -p build
	@$(CONFIGURE) -B build/tidy -DCMAKE_EXPORT_COMPILE_COMMANDS=ON > build/tidy-cmake.log
	@cmake --build build/tidy --target error_texts > build/tidy-build.log
	@find native -name '*.cpp' -not -path '*/neon/*' -not -path '*/dotprod/*' -not -path '*/i8mm/*' -not -name windows.cpp | xargs -P $(JOBS) -n 1 $(BIN)/clang-tidy -p build/tidy --quiet --extra-arg=-Wno-unknown-warning-option

# The native module by clang, and the kernels' tests on it.
CLANG ?= clang++
clang: $(VENV)/.dev
	@mkdir -p build
	@$(CONFIGURE) -B build/clang -DCMAKE_CXX_COMPILER=$(CLANG) > build/clang-cmake.log
	@cmake --build build/clang -j $(JOBS) > build/clang-build.log
	@rm -rf build/clang/src && cp -r src build/clang/src && cp build/clang/_native*.so build/clang/src/hexforge/
	@PYTHONPATH=build/clang/src:$(SITE) $(BIN)/python -S -c "$(call BUILT_IN,build/clang)"
	@PYTHONPATH=build/clang/src:$(SITE) $(BIN)/python -S -m pytest -q -p no:cacheprovider tests/native

# A build of its own with AddressSanitizer and UndefinedBehaviorSanitizer, under the kernels' tests, hostile contexts and
# programs over QNN's C API.
# Leaks are not looked for: Python itself keeps memory to its end. Reports go to the terminal, past pytest's capture.
SANITIZED := tests/native tests/backends/htp/numbers/test_assignment.py tests/runtime/contexts/test_context.py \
  tests/runtime/contexts/test_hostile.py tests/addons/capi/test_two_nodes.py tests/addons/capi/test_codes.py tests/addons/capi/test_functions.py \
  tests/addons/capi/test_sequences.py
arm64: $(VENV)/.dev
	@$(BIN)/python -m tools.arm64 $(TESTS)

windows: $(VENV)/.dev
	@$(BIN)/python -m tools.windows

four-doors: $(VENV)/.dev
	@$(BIN)/python -m tests.addons.capi.four_doors 200

sanitize: $(VENV)/.dev
	@mkdir -p build
	@$(CONFIGURE) -B build/sanitize -DHEXFORGE_SANITIZE=ON > build/sanitize-cmake.log
	@cmake --build build/sanitize -j $(JOBS) > build/sanitize-build.log
	@rm -rf build/sanitize/src && cp -r src build/sanitize/src && cp -r build/sanitize/_native*.so build/sanitize/lib build/sanitize/src/hexforge/
	@LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libstdc++.so)" ASAN_OPTIONS=detect_leaks=0 \
	  UBSAN_OPTIONS=print_stacktrace=1 PYTHONPATH=build/sanitize/src:$(SITE) sh -c '$(BIN)/python -S -c "$(call BUILT_IN,build/sanitize)" && \
	  $(BIN)/python -S -m pytest -q -p no:cacheprovider --capture=sys -k "not valgrind" $(SANITIZED)'

# Commands over Ray, on clusters of several nodes on this machine: the same code that a cluster runs.
cluster: models
	@$(INSTALL) -e '.[cluster]' kubernetes-validate
	@$(BIN)/python -m tests.addons.cluster.nothing_left $(BIN)/python -m pytest -m cluster

# LiteRT's interpreter, the judge of .tflite files, in an environment of its own, which sees what .venv has.
LITERT_VENV := .venv-litert
LITERT := "$(CURDIR)/$(LITERT_VENV)/bin/python"
litert: $(LITERT_VENV)/.installed
	@$(LITERT) -m pytest -m litert tests/addons/tflite
	@$(LITERT) -m tests.addons.tflite.judged

$(LITERT_VENV)/.installed: constraints.txt $(VENV)/.dev
	@$(PYTHON) -m venv $(LITERT_VENV)
	@echo "import site; site.addsitedir('$$($(BIN)/python -c 'import site; print(site.getsitepackages()[0])')')" \
	  > "$$($(LITERT_VENV)/bin/python -c 'import site; print(site.getsitepackages()[0])')/hexforge_of_venv.pth"
	@$(LITERT) -m pip --disable-pip-version-check -q install -c constraints.txt --no-deps ai-edge-litert backports.strenum tqdm
	@touch $@

# Measured rows of tflite beside estimates of files that onnx2tf makes of the measured graphs: an hour with the files.
litert-measured: $(LITERT_VENV)/.installed
	@$(LITERT) -m pip --disable-pip-version-check -q install -c constraints.txt --no-deps --ignore-requires-python \
	  onnx2tf==2.6.9 sne4onnx sng4onnx onnxsim onnxoptimizer onnxscript onnx-ir psutil h5py opencv-python-headless requests
	@$(LITERT) -m benchmarks.tflite.measured

# ExecuTorch and torch in an environment of their own, which sees what .venv has. The wheel's pins on other backends are
# left out, and torchaudio's library, which is built for a GPU: only the models' Python code is used.
TORCH_VENV := .venv-executorch
TORCH := "$(CURDIR)/$(TORCH_VENV)/bin/python"
executorch: $(TORCH_VENV)/.installed

$(TORCH_VENV)/.installed: constraints.txt $(VENV)/.dev
	@echo "venv: $(TORCH_VENV) with torch and executorch (first time: a minute or two)"
	@$(PYTHON) -m venv $(TORCH_VENV)
	@echo "import site; site.addsitedir('$$($(BIN)/python -c 'import site; print(site.getsitepackages()[0])')')" \
	  > "$$($(TORCH_VENV)/bin/python -c 'import site; print(site.getsitepackages()[0])')/hexforge_of_venv.pth"
	@$(TORCH) -m pip --disable-pip-version-check -q install -c constraints.txt torch expecttest graphviz hydra-core kgb \
	  omegaconf openpyxl pandas parameterized py-cpuinfo pydot requests ruamel.yaml tabulate tiktoken transformers
	@$(TORCH) -m pip --disable-pip-version-check -q install -c constraints.txt --no-deps executorch onnxscript torchao \
	  pytorch-tokenizers sentencepiece timm torchaudio torchsr torchvision
	@rm -f $(TORCH_VENV)/lib/python3*/site-packages/torchaudio/lib/*.so
	@touch $@

executorch-check: executorch
	@$(TORCH) -m pytest -m executorch tests/addons/executorch
	@$(TORCH) -m pytest -m executorch tests/addons/pytorch  # a process of its own: ExecuTorch leaves modules half loaded

# ExecuTorch's scripts and debugger on virtual phones: minutes each, so beside what CI runs.
executorch-phone: executorch
	@$(TORCH) -m pytest -m executorch --timeout 1200 tests/addons/phone

executorch-test: executorch-check
	@$(TORCH) -m tests.addons.executorch.own_suite --jobs $(JOBS) --resume build/executorch-tests $(TESTS)

# The small Llama of tests/addons/llm, trained anew into build/small_llama by a torch of its own environment.
small-llama:
	@$(PYTHON) -m venv .venv-torch
	@.venv-torch/bin/python -m pip --disable-pip-version-check -q install -c constraints.txt torch tokenizers safetensors numpy
	@.venv-torch/bin/python -m examples.small_llama.train build/small_llama

genai: $(VENV)/.dev
	@$(PYTHON) -m venv .venv-genai
	@.venv-genai/bin/python -m pip --disable-pip-version-check -q install -c constraints.txt \
	  onnxruntime-genai==0.18.0 openai torch transformers onnx onnx_ir
	@$(BIN)/python -m pytest -m genai

# AIMET, which quantizes beside hexforge, in an environment of its own: a few gigabytes, as it brings torch.
aimet:
	@echo "aimet: aimet-onnx into .venv-aimet"
	@$(PYTHON) -m venv .venv-aimet
	@.venv-aimet/bin/python -m pip --disable-pip-version-check -q install aimet-onnx==2.42.0
	@$(BIN)/python -m benchmarks.quality.aimet --markdown

# Debian's adb is unpacked beside the others, by the machine's own apt, and runs with the libraries of its packages.
DEBIAN_ADB := adb android-libbase android-libboringssl android-libcutils android-liblog libusb-1.0-0
adb-clients: $(VENV)/.dev
	@$(PYTHON) -m venv .venv-adb && mkdir -p .venv-adb/debian
	@.venv-adb/bin/python -m pip --disable-pip-version-check -q install adbutils==2.12.0 pure-python-adb==0.3.0.dev0 adb-shell==0.4.4
	-@cd .venv-adb/debian && apt-get -qq download $(DEBIAN_ADB) && for package in *.deb; do dpkg -x $$package .; done
	@cp tests/addons/phone/debian_adb.sh .venv-adb/bin/adb && chmod +x .venv-adb/bin/adb
	@$(BIN)/python -m pytest -m adb

gpu: $(VENV)/.dev
	@$(BIN)/python -m pytest -m gpu
	@$(BIN)/python -m benchmarks.gpu.inference

gpu-half: $(VENV)/.dev
	@$(INSTALL) intel-opencl-rt intel-cmplr-lib-rt
	@OCL_ICD_VENDORS="$(CURDIR)/$(VENV)/lib/libintelocl.so" HEXFORGE_GPU_DEVICE=Intel $(BIN)/python -m pytest -m gpu tests/addons/gpu

bench: models
	-@$(BIN)/python -m benchmarks.htp.memory
	@$(BIN)/python -m benchmarks.inference

$(VENV)/pyvenv.cfg:
	@echo "venv: $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.user: $(SOURCES) | $(VENV)/pyvenv.cfg
	@echo "install: hexforge and its dependencies (first time: a minute or two)"
	@$(INSTALL) .
	@touch $@

$(VENV)/.dev: $(NATIVE) | $(VENV)/pyvenv.cfg
	@echo "install: hexforge, editable, with the tools of its tests (first time: a few minutes)"
	@$(INSTALL) -e '.[dev]' -C cmake.define.HEXFORGE_WERROR=ON
	@touch $@

clean:
	rm -rf $(VENV) .venv-vendor .venv-executorch .venv-litert .venv-adb .venv-site build dist .models .mypy_cache .pytest_cache .ruff_cache .hypothesis
