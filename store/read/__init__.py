"""Reading whole banks: frames, SQL, arrays, rows."""
