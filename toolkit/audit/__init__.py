"""The auditor: whether what lies here still is what its record says, and whether the chain behind it holds."""
