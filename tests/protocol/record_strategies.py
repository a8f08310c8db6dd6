"""Records for property tests: what producers send, with the edges of every field."""

from __future__ import annotations

from hypothesis import strategies as st

from headrace.protocol.kernel_types import Fields

INT64_MAX = 2**63 - 1
INT32_MAX = 2**31 - 1

content = st.none() | st.binary(max_size=40) | st.sampled_from([b"", b"x" * 63, b"x" * 64, b"x" * 8191, b"x" * 8192])
headers = st.lists(st.tuples(st.text(max_size=8), content), max_size=4)
times = st.integers(min_value=0, max_value=2**42) | st.sampled_from([-1, 0, 63, 64, 2**31, 2**61])
fields: st.SearchStrategy[Fields] = st.tuples(content, content, headers, times)
batches_of_fields = st.lists(fields, min_size=1, max_size=12)
