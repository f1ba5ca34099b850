# SPDX-License-Identifier: MIT
"""The laboratory of hakmem: see lab/README.md."""
