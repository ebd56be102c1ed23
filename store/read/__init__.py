"""What is read from whole banks: frames, SQL, arrays, rows."""
