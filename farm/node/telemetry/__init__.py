"""What the GPU did while an engine ran: power, clock, temperature, memory, once a second, beside the records' times.

samples  one reading, and what readings say about a span of time: energy, mean clock, throttled seconds, slow state
reading  one reading by NVML, with what it cannot answer left null
sampler  `Telemetry`: the thread that takes the readings while an engine runs
table    the readings of one engine as a Parquet table (imported apart: it alone needs pyarrow)

Where there is no GPU, or no NVML, every field is null and never zero.
"""

from farm.engines.nvml import visible_gpu
from farm.node.telemetry.sampler import Telemetry
from farm.node.telemetry.samples import NO_TELEMETRY, RequestTelemetry, Sample, of_request

__all__ = ["NO_TELEMETRY", "RequestTelemetry", "Sample", "Telemetry", "of_request", "visible_gpu"]
