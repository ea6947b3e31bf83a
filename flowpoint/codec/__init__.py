"""Values to bytes and back: records, state and keys keep their Python types."""
