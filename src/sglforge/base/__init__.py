"""What every stage stands on: processes, downloads, files, the console, the workspace, the run record."""
