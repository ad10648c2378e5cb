# SPDX-License-Identifier: Apache-2.0
"""What fits the HTP's costs to measured latencies, and says how far estimates of models nobody fitted are off.

`python -m hexforge.latency` fits and writes `backends/htp/time/cost.json`. In the order of processing: `measurements`
are read; `tiled_graphs` makes the models' graphs tiles with amounts of work; `terms` says which parameters price an
amount; `critical_path` times many graphs at once, with derivatives; `fitting` fits parameters and chips; `held_out`
predicts each fold of families by fits of the others, and makes bands of that; `error_figures` say how far off it is;
`cost_file` is what is kept.
"""
