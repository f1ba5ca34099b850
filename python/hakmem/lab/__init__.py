# SPDX-License-Identifier: MIT
"""The laboratory of hakmem: see docs/design/laboratory.md."""
