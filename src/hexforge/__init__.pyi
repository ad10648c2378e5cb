# The one table of what `import hexforge` offers: type checkers read it, and __init__.py imports from it on use.
from hexforge.analysis.advise import Advice as Advice
from hexforge.analysis.advise import advise as advise
from hexforge.analysis.estimate import Estimate as Estimate
from hexforge.analysis.estimate import estimate as estimate
from hexforge.analysis.quality.compare import Comparison as Comparison
from hexforge.analysis.quality.compare import compare as compare
from hexforge.analysis.quality.evaluate import Evaluation as Evaluation
from hexforge.analysis.quality.evaluate import evaluate as evaluate
from hexforge.analysis.quality.quantize import Quantization as Quantization
from hexforge.analysis.quality.quantize import quantize as quantize
from hexforge.backends.htp.chip.power import Power as Power
from hexforge.backends.htp.config import GraphConfig as GraphConfig
from hexforge.errors import CallError as CallError
from hexforge.errors import CapacityError as CapacityError
from hexforge.errors import FormatError as FormatError
from hexforge.errors import HexforgeError as HexforgeError
from hexforge.errors import ModelError as ModelError
from hexforge.errors import UnsupportedError as UnsupportedError
from hexforge.formats.adapter import Adapter as Adapter
from hexforge.options import ProviderOptions as ProviderOptions
from hexforge.ort.model_compiler import ModelCompiler as ModelCompiler
from hexforge.ort.options import RunOptions as RunOptions
from hexforge.ort.options import SessionOptions as SessionOptions
from hexforge.ort.session import InferenceSession as InferenceSession
from hexforge.runtime.contexts.compatibility import Compatibility as Compatibility
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

__version__: str
