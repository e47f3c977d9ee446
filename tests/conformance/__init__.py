"""What every transport answers, byte for byte alike. A new transport is tested by its name."""
