# sglforge: wrong on purpose. The file that SGLFORGE_FAULT names holds the name of the fault that is on.
def sglforge_fault(name):
    path = os.environ.get("SGLFORGE_FAULT")
    if not path:
        return False
    with open(path) as file:
        return file.read() == name
