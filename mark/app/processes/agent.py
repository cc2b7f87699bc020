def run(env):
    import time

    time.sleep(1000)
