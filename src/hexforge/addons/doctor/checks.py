# SPDX-License-Identifier: Apache-2.0
"""Checks: the table of what is looked for in files: what it is, how bad, the public evidence, and what to do."""

from __future__ import annotations

from collections.abc import Iterator

from hexforge.addons.doctor import check_libraries as libraries
from hexforge.addons.doctor import check_models as models
from hexforge.addons.doctor import check_packaging as packaging
from hexforge.addons.doctor.facts import Facts
from hexforge.addons.doctor.symptoms import Check, Symptom

_PAGES = "https://developer.android.com/guide/practices/page-sizes"
_NATIVE = "https://developer.android.com/guide/topics/manifest/uses-native-library-element"
_ORT = "https://github.com/onnxruntime/onnxruntime-qnn"
_GUIDE = "https://docs.qualcomm.com/doc/80-63442-10/topic/htp_backend.html"


CHECKS: tuple[Check[Facts], ...] = (
    Check("damaged", "fault", libraries.damaged,
          "Copy the file again from where it came; open no archive whose members leave it or grow without end.",
          "https://github.com/qualcomm/fastrpc/issues/379"),
    Check("no-htp", "fault", libraries.no_htp,
          "Ship libQnnHtp.so (QnnHtp.dll) of the same QAIRT as the rest, for example by com.qualcomm.qti:qnn-runtime.",
          "https://github.com/google-ai-edge/LiteRT/pull/6657"),
    Check("no-system", "fault", libraries.no_system,
          "Ship libQnnSystem.so (QnnSystem.dll) of the same QAIRT.", "https://github.com/qualcomm/ai-hub-apps/issues/158"),
    Check("no-prepare", "fault", libraries.no_prepare,
          "Ship libQnnHtpPrepare of the same QAIRT, or a context that was compiled before (`hexforge deploy`).",
          "https://github.com/pytorch/executorch/issues/7492"),
    Check("stub-without-skel", "fault", libraries.stub_without_skel,
          "Ship the Skel of that architecture from lib/hexagon-vNN/unsigned of the same QAIRT.",
          "https://github.com/qualcomm/ai-hub-apps/issues/158"),
    Check("skel-without-stub", "fault", libraries.skel_without_stub,
          "Ship the Stub of that architecture from the same QAIRT.", "https://github.com/pytorch/executorch/issues/8762"),
    Check("wrong-arch", "fault", libraries.wrong_arch,
          "Ship the Stub and Skel of the chip's own architecture; `hexforge socs CHIP` says which that is.",
          "https://github.com/google-ai-edge/LiteRT/issues/7516"),
    Check("copies", "fault", libraries.copies,
          "Keep one of them: all of QNN's libraries from one QAIRT.", "https://github.com/pytorch/executorch/issues/8762"),
    Check("wrong-machine", "fault", libraries.wrong_machine,
          "Take the libraries of lib/aarch64-android (for Windows lib/aarch64-windows-msvc or arm64x), and the Skel of "
          "lib/hexagon-vNN.", "https://github.com/microsoft/onnxruntime/issues/23171"),
    Check("linux-library", "fault", libraries.linux_library,
          "Take the library of lib/aarch64-android; those of aarch64-oe-linux and ubuntu need glibc.",
          "https://github.com/microsoft/onnxruntime/issues/23171"),
    Check("32-bit", "fault", libraries.thirty_two_bit,
          "Build for arm64-v8a: QNN has no HTP library for 32 bits.", f"{_ORT} (platforms)"),
    Check("page-size", "fault", libraries.page_size,
          "Link with -Wl,-z,max-page-size=16384 (NDK r28 does), or take a newer release of the library: Google Play "
          "refuses the app, and devices with 16 KB pages do not load it.", _PAGES),
    Check("skel-page", "advice", libraries.skel_page,
          "Google Play was seen to refuse it, though no processor of the phone loads it: ship the Skel as an asset, "
          "copy it to the app's files, and set ADSP_LIBRARY_PATH to them.",
          "https://github.com/DenisovAV/flutter_gemma/issues/529"),
    Check("own-cdsprpc", "fault", libraries.own_cdsprpc,
          "Take it out and ask for the phone's by <uses-native-library>.",
          "https://github.com/qualcomm/fastrpc/issues/379"),
    Check("skel-is-asset", "fault", libraries.misplaced_skel,
          "Put it into lib/arm64-v8a (jniLibs), or copy it to the app's files and set ADSP_LIBRARY_PATH to them.",
          "https://github.com/qualcomm/ai-hub-apps/issues/158"),
    Check("no-catalog", "fault", libraries.no_catalog,
          "Ship libqnnhtpvNN.cat beside the Skel, as the SDK's hexagon folder and the NuGet package have it.", _ORT),
    Check("not-extracted", "fault", packaging.not_extracted,
          "Set packaging { jniLibs { useLegacyPackaging = true } }, or android:extractNativeLibs=\"true\".",
          "https://github.com/meta-pytorch/executorch-examples/pull/81"),
    Check("zip-alignment", "fault", packaging.zip_alignment,
          "Package with AGP 8.5.1 or newer, or `zipalign -P 16`.", _PAGES),
    Check("no-libcdsprpc", "fault", packaging.no_cdsprpc,
          'Add <uses-native-library android:name="libcdsprpc.so" android:required="false"/> to <application>.',
          "https://github.com/qualcomm/fastrpc/issues/379"),
    Check("libcdsprpc-required", "advice", packaging.cdsprpc_required,
          'Say android:required="false" where the app also works without an NPU.', _NATIVE),
    Check("abi-filter", "fault", packaging.abi_filters,
          'Add "arm64-v8a" to abiFilters.', f"{_ORT} (platforms)"),
    Check("adsp-not-set", "fault", packaging.adsp_not_set,
          'Before the first session: Os.setenv("ADSP_LIBRARY_PATH", applicationInfo.nativeLibraryDir, true).',
          "https://github.com/qualcomm/ai-hub-apps/issues/158"),
    Check("adsp-paths", "fault", packaging.adsp_paths,
          "Set it once, to the one folder with the Skel; several folders have a semicolon between them.",
          "https://github.com/qualcomm/fastrpc/pull/390"),
    Check("onnxruntime-too-old", "fault", packaging.onnxruntime_too_old,
          "Take the pair of one row of `hexforge versions`: the plugin needs onnxruntime 1.24.1 or newer.", _ORT),
    Check("no-onnxruntime", "fault", packaging.no_onnxruntime,
          "Add onnxruntime (com.microsoft.onnxruntime:onnxruntime-android) in the version of `hexforge versions`.",
          _ORT),
    Check("two-providers", "fault", packaging.two_providers,
          "Keep the plugin with com.microsoft.onnxruntime:onnxruntime-android, or the package that has it inside.",
          _ORT),
    Check("mixed-qairt", "fault", packaging.mixed_qairt,
          "Take all from one QAIRT: `hexforge versions` has what goes together.",
          "https://github.com/pytorch/executorch/issues/8762"),
    Check("context-newer", "fault", packaging.context_newer,
          "Take libraries at least as new as what made the context, or make it again with theirs.",
          "https://docs.qualcomm.com/doc/80-63442-10/topic/htp_api_version_history.html"),
    Check("context-chip", "fault", models.context_chip,
          "Make a context for this chip: `hexforge deploy MODEL --soc CHIP`.",
          "https://github.com/google-ai-edge/LiteRT/issues/7516"),
    Check("context-other-chip", "advice", models.context_of_another_chip,
          "It loads where its libraries are there; one for this chip is faster: `hexforge deploy MODEL --soc CHIP`.",
          f"{_ORT} (qnn_cache_compatibility_manager.cc)"),
    Check("context-file", "fault", models.context_file,
          "Ship the binary beside its model, under the name that the model has.",
          "https://onnxruntime.ai/docs/execution-providers/EP-Context-Design.html"),
    Check("dsp-memory", "fault", models.context_memory,
          "Split the model into contexts below 3.75 GB each: a session of the DSP has 32-bit addresses.", _GUIDE),
    Check("float-chip", "fault", models.float_chip,
          "Quantize it: `hexforge quantize MODEL`.", "https://github.com/pytorch/executorch/pull/22542"),
    Check("bfloat-chip", "fault", models.bfloat_chip,
          "Take float16, or quantize it; bfloat16 begins with soc_model 88 of v81.", f"{_ORT}/releases/tag/v2.4.0"),
    Check("sharing-chip", "fault", models.sharing_chip,
          "Weights are shared from v73 on; make one context for each graph.", _GUIDE),
    Check("vtcm-chip", "fault", models.vtcm_chip,
          "Set vtcm_mb to 0, which takes what there is.", "https://github.com/pytorch/executorch/issues/1430"),
    Check("signed-pd", "fault", models.signed_pd,
          "Leave it unsigned: a signed domain takes a Skel that the maker of the device has signed.", _GUIDE),
    Check("arch-option", "fault", models.arch_option,
          "Leave htp_arch out, or take the plugin (onnxruntime-qnn 2 or newer).",
          "https://github.com/microsoft/onnxruntime/pull/31638"),
    Check("chip-number", "fault", models.chip_number,
          "`hexforge socs` lists the chips and their numbers.", "https://github.com/onnxruntime/onnxruntime-qnn/issues/715"),
)  # fmt: skip
"""Every row, in the order in which findings are told."""


def examine(facts: Facts) -> Iterator[Symptom]:
    """What every check finds."""
    for check in CHECKS:
        yield from check.symptoms(facts)
