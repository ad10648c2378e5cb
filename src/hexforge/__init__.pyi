# The one table of what `import hexforge` offers: type checkers read it, and __init__.py imports from it on use.
# `import new as old` keeps an old name for one version; its use gives a DeprecationWarning.
from hexforge import ort as ort
from hexforge.addons import device as device
from hexforge.addons import executorch as executorch
from hexforge.addons import llm as llm
from hexforge.addons.cluster.sweep.run import SweepRequest as SweepRequest
from hexforge.addons.cluster.sweep.run import sweep as sweep
from hexforge.addons.cluster.sweep.table import Sweep as Sweep
from hexforge.addons.cluster.sweep.table import SweepRow as SweepRow
from hexforge.addons.cluster.sweep.table import read_sweep as read_sweep
from hexforge.analysis.advice import Advice as Advice
from hexforge.analysis.advise import advise as advise
from hexforge.analysis.difference.changes import Difference as Difference
from hexforge.analysis.estimate import Estimate as Estimate
from hexforge.analysis.explain import explain as explain
from hexforge.analysis.explain.reading import ExplainedLine as ExplainedLine
from hexforge.analysis.explain.reading import Explanation as Explanation
from hexforge.analysis.gate import GateCheck as GateCheck
from hexforge.analysis.gate import GateResult as GateResult
from hexforge.analysis.optimize import OptimizeRequest as OptimizeRequest
from hexforge.analysis.optimize import OptimizeResult as OptimizeResult
from hexforge.analysis.optimize import OptimizeResult as Optimized  # noqa: F401
from hexforge.analysis.optimize import optimize as optimize
from hexforge.analysis.quality.compare import compare as compare
from hexforge.analysis.quality.comparison import Comparison as Comparison
from hexforge.analysis.quality.evaluate import Evaluation as Evaluation
from hexforge.analysis.quality.evaluate import evaluate as evaluate
from hexforge.analysis.quality.quantize import Quantization as Quantization
from hexforge.analysis.quality.quantize import quantize as quantize
from hexforge.analysis.quality.search import Scoring as Scoring
from hexforge.analysis.quality.search import SearchResult as SearchResult
from hexforge.analysis.quality.search import SearchResult as Searched  # noqa: F401
from hexforge.analysis.quality.search import SearchSpace as SearchSpace
from hexforge.analysis.quality.search import search as search
from hexforge.analysis.quality.whatif import WhatIf as WhatIf
from hexforge.analysis.quality.whatif import WhatIfRequest as WhatIfRequest
from hexforge.analysis.quality.whatif import whatif as whatif
from hexforge.analysis.spread.workers import Workers as Workers
from hexforge.any_model import diff as diff
from hexforge.any_model import estimate as estimate
from hexforge.any_model import estimates as estimates
from hexforge.any_model import gate as gate
from hexforge.any_model import profile as profile
from hexforge.backend import Compatibility as Compatibility
from hexforge.chips.deployment import Deployment as Deployment
from hexforge.chips.graph_config import GraphConfig as GraphConfig
from hexforge.chips.power import Power as Power
from hexforge.errors import CallError as CallError
from hexforge.errors import CapacityError as CapacityError
from hexforge.errors import FormatError as FormatError
from hexforge.errors import HexforgeError as HexforgeError
from hexforge.errors import ModelError as ModelError
from hexforge.errors import UnsupportedError as UnsupportedError
from hexforge.formats.adapter import Adapter as Adapter
from hexforge.ir.op import Param as Param
from hexforge.ops.packages import OpPackage as OpPackage
from hexforge.ops.packages import register_op_package as register_op_package
from hexforge.ort.check import CheckedNode as CheckedNode
from hexforge.ort.check import ModelCheck as ModelCheck
from hexforge.ort.check import check as check
from hexforge.ort.model_compiler import ModelCompiler as ModelCompiler
from hexforge.ort.options.provider_options import ProviderOptions as ProviderOptions
from hexforge.ort.options.session_options import RunOptions as RunOptions
from hexforge.ort.options.session_options import SessionOptions as SessionOptions
from hexforge.ort.session import InferenceSession as InferenceSession
from hexforge.runtime.contexts.compatibility import validate as validate
from hexforge.runtime.contexts.compile import Compiled as Compiled
from hexforge.runtime.contexts.compile import compile as compile
from hexforge.runtime.contexts.context import Context as Context
from hexforge.runtime.contexts.loading import CancelledError as CancelledError
from hexforge.runtime.contexts.loading import ContextConfig as ContextConfig
from hexforge.runtime.contexts.loading import Signal as Signal
from hexforge.runtime.contexts.loading import load_context as load_context
from hexforge.runtime.contexts.loading import load_contexts as load_contexts
from hexforge.runtime.contexts.manage import ManagedSession as ManagedSession
from hexforge.runtime.contexts.request import ContextRequest as ContextRequest
from hexforge.runtime.registry import register_backend as register_backend
from hexforge.runtime.tool_config import deployment_from_config as configured  # noqa: F401
from hexforge.runtime.tool_config import deployment_from_config as deployment_from_config

__all__: list[str]
__version__: str
