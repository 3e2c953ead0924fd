"""JSON schemas as documents: reading, checking, writing them from Python types and shorthand."""
