# SPDX-License-Identifier: Apache-2.0
"""Config files of QNN's tools, read into checked records; the error lists every fault at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hexforge.chips.htp_config import HtpConfig
from hexforge.errors import CallError
from hexforge.formats.config_sections import ConfigSection, GraphSection, HtpFile, ToolFile
from hexforge.formats.json_text import read_json
from hexforge.formats.validated import validated
from hexforge.options import did_you_mean

ARCHITECTURES = ("NONE", *(f"v{arch}" for arch in HtpConfig.ARCHITECTURES))


@dataclass(frozen=True, slots=True)
class Config:
    """A tool's config file with the backend's own that it names."""

    tool: ToolFile = field(default_factory=ToolFile)
    htp: HtpFile = field(default_factory=HtpFile)
    where: str = ""
    """The file of the backend's keys."""
    warnings: tuple[str, ...] = ()
    """Settings that are accepted but will not have the effect they promise."""

    def graph(self, name: str) -> GraphSection:
        """How a graph is prepared: as the section that names it says, else by default."""
        for section in self.htp.graphs:
            if section.graph_names is None or name in section.graph_names:
                return section
        return GraphSection()

    def common_section(self, names: Sequence[str]) -> GraphSection:
        """The section of the graphs of one context, which differ in VTCM and HVX threads at most; else CallError."""
        sections = [self.graph(name) for name in names]
        apart = {key.key for key, _ in GraphSection.options if key.per_graph}
        for key in set(GraphSection.model_fields) - {"graph_names", *apart}:
            if len({getattr(section, key) for section in sections}) > 1:
                raise CallError(f"{self.where}: {key}: graphs of one context ({', '.join(names)}) have the same")
        return sections[0]

    @property
    def names_chip(self) -> bool:
        """Whether it says what to prepare for: a chip, or an architecture."""
        return any(d.soc_model or d.soc_id or d.dsp_arch.upper() != "NONE" for d in self.htp.devices)

    @property
    def shares_buffers(self) -> bool:
        """Whether inputs and outputs lie in buffers that the CPU shares with the HTP."""
        return self.htp.memory.mem_type is not None

    def set_keys(self) -> Iterator[tuple[str, Any, tuple[str, ...]]]:
        """Every key that is set: where it stands, its value, and which tools read it."""
        yield from _set_keys(self.tool, "")
        yield from _set_keys(self.htp, "")


def load(path: Path, folder: Path | None = None) -> Config:
    """A config file and what it names, from `folder`: a tool's (backend_extensions), or the HTP's own."""
    data = read_json(path)
    own = set(HtpFile.model_fields)
    if isinstance(data, dict) and data and own >= set(data):
        return load_htp(path)
    tool = validated(ToolFile, data, str(path))
    named = tool.backend_extensions.config_file_path
    if not named:
        return Config(tool, where=str(path), warnings=tuple(_tool_warnings(tool, HtpFile())))
    target = _locate_file(named, path, folder)
    htp = validated(HtpFile, read_json(target), str(target))
    faults = [*_conflicts(htp), *_tool_conflicts(tool, htp)]
    if faults:
        raise CallError("\n".join(f"{target}: {fault}" for fault in faults))
    return Config(tool, htp, str(target), (*_warnings(htp), *_tool_warnings(tool, htp)))


def load_htp(path: Path) -> Config:
    """The HTP's own config file."""
    htp = validated(HtpFile, read_json(path), str(path))
    if faults := _conflicts(htp):
        raise CallError("\n".join(f"{path}: {fault}" for fault in faults))
    return Config(ToolFile(), htp, str(path), tuple(_warnings(htp)))


def schema() -> dict[str, Any]:
    """JSON Schema of both files, with the tools that read each key (readBy)."""
    made = {name: model.model_json_schema() for name, model in (("tool", ToolFile), ("htp", HtpFile))}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Config files of QNN's tools",
        "description": "tool: what --config_file names; htp: what backend_extensions.config_file_path names.",
        "$defs": made,
        "anyOf": [{"$ref": "#/$defs/tool"}, {"$ref": "#/$defs/htp"}],
    }


def _locate_file(named: str, path: Path, folder: Path | None) -> Path:
    """A file that a config names: from the folder the tool runs in, else from the config's own."""
    given = Path(named)
    tried = [given] if given.is_absolute() else [(folder or Path.cwd()) / given, path.parent / given]
    for candidate in tried:
        if candidate.is_file():
            return candidate
    listed = " or ".join(str(candidate) for candidate in dict.fromkeys(tried))
    raise CallError(f"{path}: backend_extensions.config_file_path {named!r}: there is no file {listed}")


def _set_keys(section: ConfigSection, place: str) -> Iterator[tuple[str, Any, tuple[str, ...]]]:
    for name in type(section).model_fields:
        if name not in section.model_fields_set:
            continue
        value = getattr(section, name)
        here = f"{place}.{name}".removeprefix(".")
        if isinstance(value, ConfigSection):
            yield from _set_keys(value, here)
        elif isinstance(value, list) and value and isinstance(value[0], ConfigSection):
            for index, item in enumerate(value):
                yield from _set_keys(item, f"{here}[{index}]")
        else:
            yield here, value, section.readers(name)


# -- what cannot be together ------------------------------------------------------------------------------------------


def _conflicts(htp: HtpFile) -> list[str]:
    """Settings of a file that contradict each other, one line each."""
    faults: list[str] = []
    names = [name for section in htp.graphs for name in section.graph_names or ()]
    faults += [f"graphs: {name!r} is named twice" for name in dict.fromkeys(n for n in names if names.count(n) > 1)]
    if len(htp.graphs) > 1 and any(section.graph_names is None for section in htp.graphs):
        faults.append("graphs: a section without graph_names is for all graphs; name the graphs of each section")
    for index, section in enumerate(htp.graphs):
        faults.extend(_exclusions(section, htp, f"graphs[{index}]"))
    for index, device in enumerate(htp.devices):
        if device.dsp_arch.lower() not in (name.lower() for name in ARCHITECTURES):
            near = did_you_mean(device.dsp_arch, ARCHITECTURES)
            faults.append(f"devices[{index}].dsp_arch is {device.dsp_arch!r}: one of {', '.join(ARCHITECTURES)}{near}")
        if device.device_id:
            faults.append(f"devices[{index}].device_id is {device.device_id}: there is one device, 0")
        if device.core_type == 1:
            faults.append(f"devices[{index}].core_type is 1: there is no HPASS core here; 0 is the NSP")
    group = htp.context
    if group.max_spill_fill_buffer_for_group is not None and group.group_id != 0:
        faults.append("context.max_spill_fill_buffer_for_group: group_id must be 0 for it")
    return faults


def _exclusions(section: GraphSection, htp: HtpFile, place: str) -> Iterator[str]:
    """Options of a graph that another key rules out."""
    for key, _ in section.options:
        where, _, other = key.excludes[0].rpartition(".")
        if other and key.is_on(getattr(section, key.key)):
            value = getattr(section if where == key.section else getattr(htp, where), other)
            if value is not None and value is not False:
                yield key.excludes[1].format(place=place)


def _tool_conflicts(tool: ToolFile, htp: HtpFile) -> list[str]:
    if tool.context_configs.memory_limit_hint and htp.groupContext.share_resources:
        return ["groupContext.share_resources: not together with graph switching (context_configs.memory_limit_hint)"]
    return []


def _warnings(htp: HtpFile) -> Iterator[str]:
    for index, section in enumerate(htp.graphs):
        if section.graph_names == []:
            yield f"graphs[{index}].graph_names is empty, so the section is for no graph; leave it out for all"
    if htp.context.group_id is not None and htp.context.max_spill_fill_buffer_for_group is None:
        yield "context.group_id changes nothing without max_spill_fill_buffer_for_group, the buffer of the group"
    for index, device in enumerate(htp.devices):
        if device.soc_id and not device.soc_model:
            yield f"devices[{index}].soc_id is deprecated; soc_model is its name now"
        if device.soc_id and device.soc_model and device.soc_id != device.soc_model:
            yield f"devices[{index}]: soc_id {device.soc_id} and soc_model {device.soc_model} differ; soc_model is used"
        if device.use_client_context is not None:
            yield f"devices[{index}].use_client_context is not supported from v68 on, and changes nothing"
        for number, core in enumerate(device.cores):
            where = f"devices[{index}].cores[{number}].adaptive_polling_time"
            if core.adaptive_polling_time and core.rpc_polling_time == 0:
                yield f"{where}: needs polling, which rpc_polling_time 0 turns off"
            elif 0 < core.adaptive_polling_time < 1000:
                yield f"{where} {core.adaptive_polling_time}: below 1000 µs it gains nothing"
    if any(section.fp16_relaxed_precision is not None for section in htp.graphs):
        yield "graphs: fp16_relaxed_precision is deprecated since 2.35; the chip decides, and nothing changes"


def _tool_warnings(tool: ToolFile, htp: HtpFile) -> Iterator[str]:
    context = tool.context_configs
    if context.memory_limit_hint and not context.is_persistent_binary:
        yield "context_configs.memory_limit_hint: graph switching needs is_persistent_binary true"
    if context.graph_retention_order and not context.memory_limit_hint:
        yield "context_configs.graph_retention_order: is off without memory_limit_hint"
    if context.async_execute_queue_depth is not None:
        yield "context_configs.async_execute_queue_depth changes nothing: executions wait for each other as they come"
    for index, graph in enumerate(tool.graph_configs):
        for key in ("graph_profiling_start_delay", "graph_profiling_num_executions"):
            if getattr(graph, key) is not None:
                yield f"graph_configs[{index}].{key} changes nothing: all executions of a run are profiled"
