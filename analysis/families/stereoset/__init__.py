"""StereoSet: lms, ss and iCAT."""
