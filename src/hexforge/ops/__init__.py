"""The QNN op set. Importing this package fills the op table."""

from hexforge.ops import elementwise as elementwise
