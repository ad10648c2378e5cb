"""Native kernels of hexforge."""

from collections.abc import Sequence
from typing import Annotated, overload

import numpy
from numpy.typing import NDArray

@overload
def requantize(
    accumulators: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    multipliers: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    out: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order="C", device="cpu")],
    zero_point: int,
    low: int,
    high: int,
) -> None: ...
@overload
def requantize(
    accumulators: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    multipliers: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    out: Annotated[NDArray[numpy.int8], dict(shape=(None, None), order="C", device="cpu")],
    zero_point: int,
    low: int,
    high: int,
) -> None: ...
@overload
def requantize(
    accumulators: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    multipliers: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    out: Annotated[NDArray[numpy.uint16], dict(shape=(None, None), order="C", device="cpu")],
    zero_point: int,
    low: int,
    high: int,
) -> None: ...
@overload
def requantize(
    accumulators: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    multipliers: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    out: Annotated[NDArray[numpy.int16], dict(shape=(None, None), order="C", device="cpu")],
    zero_point: int,
    low: int,
    high: int,
) -> None:
    """
    out[r, c] = clamp(round_half_even(accumulators[r, c] * multipliers[c]) + zero_point, low, high)
    """

def peak_macs(kind: str) -> float:
    """
    Multiply-accumulates per second of a loop that only touches registers, for u8, s16 or f32: the kernels' floor.
    """

def crc32c(
    data: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)],
    before: int = 0,
    threads: int = 1,
    least_part: int = 4194304,
) -> int:
    """
    CRC-32C of bytes that follow data with the checksum `before`; of many bytes each thread computes a part.
    """

def widen_halves(
    halves: Annotated[NDArray[numpy.uint16], dict(shape=(None,), order="C", device="cpu", writable=False)],
    wide: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu")],
) -> None:
    """Write halves, given by their bits, as float32."""

def narrow_halves(
    wide: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)],
    halves: Annotated[NDArray[numpy.uint16], dict(shape=(None,), order="C", device="cpu")],
) -> None:
    """Write the bits of float32 numbers rounded as the vector unit does."""

def narrow_matrix_halves(
    wide: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu", writable=False)],
    halves: Annotated[NDArray[numpy.uint16], dict(shape=(None,), order="C", device="cpu")],
) -> None:
    """Write the bits of float32 numbers rounded as the matrix unit does."""

def winograd_cells(
    halves: Annotated[
        NDArray[numpy.uint16], dict(shape=(None, None, None, None), order="C", device="cpu", writable=False)
    ],
    cells: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu")],
) -> None:
    """
    Write the cells of [3, 3, in, out] weights, given by their bits in float16, as the kernels read them.
    """

class Program:
    """Steps over an arena, run in one call with the GIL released."""

    def __init__(self, arena_bytes: int) -> None: ...
    def arena_tensor(self, offset: int, bytes: int) -> int: ...
    def constant_tensor(self, array: object) -> int: ...
    def input_tensor(self, bytes: int, room: int = 0) -> int:
        """
        An input. With `room` the array that a run is given has so many bytes more, which steps may read, not use.
        """

    def output_tensor(self, bytes: int, room: int = 0) -> int:
        """
        An output. With `room` the array that a run is given has so many bytes more, which steps may read, not use.
        """

    def step(self, kind: str, ins: Sequence[int], outs: Sequence[int], attributes: dict) -> None: ...
    def require_assigned(self) -> None:
        """
        ValueError where a step reads what no step before it wrote, or an output is not written whole.
        """

    def run(
        self,
        inputs: Sequence[Annotated[NDArray, dict(order="C", device="cpu", writable=False)]],
        outputs: Sequence[Annotated[NDArray, dict(order="C", device="cpu")]],
        threads: int,
        spin_us: int = 1000,
        spin_after_us: int = 100,
        check: object | None = None,
        count: int = 18446744073709551615,
    ) -> None:
        """
        Run the steps, or the first `count` of them. Workers that wait stay awake for so many microseconds, during the run and after it. `check` is called every now and then between two steps, and may raise to end the run; so may signals.
        """

    def time_steps(
        self,
        inputs: Sequence[Annotated[NDArray, dict(order="C", device="cpu", writable=False)]],
        outputs: Sequence[Annotated[NDArray, dict(order="C", device="cpu")]],
        threads: int,
    ) -> list[tuple[float, float, int]]:
        """
        Run the steps on one thread; of each the seconds, those it would take at least on so many threads with a core each, and how many of its loops would be split.
        """

    @property
    def states(self) -> dict[int, int]:
        """
        Outputs that are an input with something put in, where no other step reads that input.
        """

    @property
    def last_steps(self) -> list[int]:
        """Of each output the number of steps after which it is whole."""

    @property
    def kinds(self) -> list[str]:
        """Of its steps."""

    @property
    def constants(self) -> list[tuple[int, str, int]]:
        """
        Of a program from a file, where the arrays of its steps lie: step, name, address.
        """

    @property
    def overflowed(self) -> bool:
        """True once a run had a number past what float16 holds, but 65536."""

def load_program(name: str, text: bytes, get: object) -> tuple:
    """
    The stages that a program's JSON in a context describes, and which tensors are bfloat16 to the model, or None. A stage is a program, its bytes of working memory, names and bytes of what it reads, names, data types, shapes of what it writes and whether bytes must lie behind; or a node, what it reads and writes.
    """

def read_array(text: bytes, get: object) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,), writable=False)]:
    """The bytes of an array that a program's JSON describes."""

def move_to_large_pages(
    packed: Sequence[object], others: Sequence[object]
) -> list[Annotated[NDArray[numpy.uint8], dict(shape=(None,), writable=False)] | None]:
    """
    Copies of arrays of a mapped file that programs share, None of what stays where it is: for tests.
    """

def release_free_memory() -> None:
    """
    Give memory that was freed back to the system, which the C library would keep for later.
    """

def step_fields() -> dict[str, dict[str, str]]:
    """The attributes of every kind of step, each with what it is."""

def step_rooms() -> dict[str, int]:
    """
    The bytes behind each of its tensors that a kind of step may read, and never uses.
    """

def step_exact_from() -> dict[str, int]:
    """
    Of every kind of step the first input from which on it reads nothing behind its tensors.
    """

def split_everything(wanted: bool) -> None:
    """Split every loop over the threads, however small it is: for tests."""

def guard_mapping(
    data: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)], file: int
) -> int:
    """
    Let a mapped file be truncated without ending the process; the number to ask with, or -1.
    """

def unguard_mapping(number: int) -> None:
    """End that, before the mapping ends."""

def mapping_of(address: int) -> int:
    """The number of the guarded mapping that an address lies in, or -1."""

def mapping_lost(number: int) -> bool:
    """True where its file was truncated."""

def level() -> str:
    """The instruction set in use."""

def levels() -> list[str]:
    """The instruction sets this CPU has, slowest first."""

def set_level(level: str) -> None:
    """Use a lower instruction set than the CPU has: for tests."""

def read_sections(
    data: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)], where: str
) -> list[tuple[str, str, int, int, int]]:
    """
    The table of a container's sections: kind, name, offset, bytes and checksum of each.
    """

class CompiledGraph:
    """A graph of a context, ready to run without Python."""

    @property
    def inputs(self) -> list[tuple[str, int, str, list[int], int, int, list[float], list[int], int]]: ...
    @property
    def outputs(self) -> list[tuple[str, int, str, list[int], int, int, list[float], list[int], int]]: ...
    @property
    def overflowed(self) -> bool:
        """True once a run had a number past what float16 holds."""

    def run(
        self,
        inputs: Sequence[Annotated[NDArray, dict(order="C", device="cpu", writable=False)]],
        outputs: Sequence[Annotated[NDArray, dict(order="C", device="cpu")]],
        threads: int = 0,
    ) -> None:
        """Run on arrays in the order of the tensors."""

class CompiledContext:
    """A compiled context, opened as programs in C open it."""

    @staticmethod
    def open_file(path: str, verify: bool = True) -> CompiledContext: ...
    @staticmethod
    def open_memory(
        data: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)],
        verify: bool = True,
    ) -> CompiledContext: ...
    @property
    def backend(self) -> str: ...
    @property
    def producer(self) -> str: ...
    @property
    def options(self) -> dict[str, str]: ...
    @property
    def metadata(self) -> dict[str, str]: ...
    @property
    def targets(self) -> list[tuple[str, str, dict[str, int]]]: ...
    @property
    def graphs(self) -> list[str]: ...
    def settings(self, graph: str) -> dict[str, int]: ...
    def graph(self, name: str) -> CompiledGraph: ...
    def timeline(self, graph: str, soc: str = "") -> list[tuple[str, str, float, float, int]]:
        """Name, op, start, microseconds and cycles of each task."""

    def apply_adapter(
        self,
        data: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order="C", device="cpu", writable=False)],
        graph: str = "",
        verify: bool = True,
    ) -> None: ...
    def remove_adapters(self, graph: str = "") -> None: ...

def extent(
    x: Annotated[NDArray[numpy.float32], dict(order="C", device="cpu", writable=False)],
) -> tuple[float, float, int, int]:
    """
    Lowest and highest finite value, how many are zero, how many are not finite.
    """

def observe(
    x: Annotated[NDArray[numpy.float32], dict(order="C", device="cpu", writable=False)],
    counts: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu")],
    exponent: int,
    low: float,
    high: float,
) -> tuple[float, float, int, int, int]:
    """
    Count x into a histogram of bins of 2^exponent, whose values lie between low and high; extent and new exponent.
    """

def coarsen(
    counts: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu")],
    exponent: int,
    low: float,
    high: float,
    wanted: int,
) -> None:
    """Make the bins of a histogram 2^wanted wide."""

def histogram_exponent(low: float, high: float, bins: int) -> int:
    """The exponent of the bins of values between low and high."""

def channel_extents(
    x: Annotated[NDArray[numpy.float32], dict(shape=(None, None, None), order="C", device="cpu", writable=False)],
    low: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu")],
    high: Annotated[NDArray[numpy.float32], dict(shape=(None,), order="C", device="cpu")],
) -> None:
    """Widen low and high of each channel of x [outer, channel, inner]."""

def divergences(
    counts: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    sums: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    filled: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    logs: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    first: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu")],
    last: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu")],
    levels: int,
    out: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu")],
) -> None:
    """out[k]: information lost when bins first[k]..last[k] become levels."""

def clipping_errors(
    counts: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    first: float,
    width: float,
    least: float,
    most: float,
    scales: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    low: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    high: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    out: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu")],
) -> None:
    """
    out[k]: squared error of a histogram's values, least to most, when rounded to scales[k] and cut to low..high.
    """

def rounding_errors(
    x: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    scales: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    low: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    high: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    out: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu")],
) -> None:
    """
    out[r, k]: squared error of row r when rounded to low..high steps of scales[r, k].
    """

@overload
def difference(
    reference: Annotated[NDArray[numpy.float32], dict(order="C", device="cpu", writable=False)],
    found: Annotated[NDArray[numpy.float32], dict(order="C", device="cpu", writable=False)],
) -> tuple[float, float, float, float, int, int]:
    """
    Sums of squares of the reference, of the error, of what was found; the largest error; elements where both are finite numbers, and elements where only the reference is.
    """

@overload
def difference(
    reference: Annotated[NDArray[numpy.float64], dict(order="C", device="cpu", writable=False)],
    found: Annotated[NDArray[numpy.float64], dict(order="C", device="cpu", writable=False)],
) -> tuple[float, float, float, float, int, int]:
    """The same of float64."""

def rounding_difference(
    x: Annotated[NDArray[numpy.float32], dict(order="C", device="cpu", writable=False)],
    scale: float,
    low: float,
    high: float,
) -> tuple[float, float, float, float, int, int]:
    """
    The difference of x and what rounding it to low..high steps of a scale leaves of it.
    """

def channel_products(
    reference: Annotated[
        NDArray[numpy.float32], dict(shape=(None, None, None), order="C", device="cpu", writable=False)
    ],
    found: Annotated[NDArray[numpy.float32], dict(shape=(None, None, None), order="C", device="cpu", writable=False)],
    sums: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu")],
) -> None:
    """
    Add to sums [3, channels] those of reference², reference * found and found² of each channel [outer, channel, inner].
    """
