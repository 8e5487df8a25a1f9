"""librdkafka's built-in mock cluster as a process of its own, driven through its C interface.

Prints the library's version and the brokers' addresses on one line and runs until it is ended. With
`--errors` the cluster answers some requests with injected errors, drops and delays.
"""

import argparse
import ctypes
import glob
import os
import signal
import sys

import confluent_kafka

PRODUCE, FETCH, METADATA, INIT_PRODUCER_ID = 0, 1, 3, 22
NOT_LEADER, REQUEST_TIMED_OUT, COORDINATOR_LOADING, KAFKA_STORAGE, THROTTLING = 6, 7, 14, 56, 89
TRANSPORT = -195  # the mock cluster closes the connection instead of answering


def library():
    folder = os.path.join(os.path.dirname(os.path.dirname(confluent_kafka.__file__)), "confluent_kafka.libs")
    lib = ctypes.CDLL(glob.glob(os.path.join(folder, "librdkafka-*"))[0])
    lib.rd_kafka_conf_new.restype = ctypes.c_void_p
    lib.rd_kafka_new.restype = ctypes.c_void_p
    lib.rd_kafka_new.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
    lib.rd_kafka_mock_cluster_new.restype = ctypes.c_void_p
    lib.rd_kafka_mock_cluster_new.argtypes = [ctypes.c_void_p, ctypes.c_int]
    lib.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    lib.rd_kafka_mock_cluster_bootstraps.argtypes = [ctypes.c_void_p]
    lib.rd_kafka_mock_topic_create.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_int]
    lib.rd_kafka_mock_broker_set_rtt.argtypes = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_int]
    lib.rd_kafka_mock_push_request_errors_array.argtypes = [
        ctypes.c_void_p, ctypes.c_int16, ctypes.c_size_t, ctypes.POINTER(ctypes.c_int)]
    return lib


def inject(lib, cluster, api_key, errors):
    lib.rd_kafka_mock_push_request_errors_array(cluster, api_key, len(errors), (ctypes.c_int * len(errors))(*errors))


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--brokers", type=int, default=3)
    arguments.add_argument("--errors", action="store_true")
    arguments.add_argument("--rtt", type=int, default=0, help="delay of the first broker's answers, in ms")
    options = arguments.parse_args()
    lib = library()
    handle = lib.rd_kafka_new(0, lib.rd_kafka_conf_new(), ctypes.create_string_buffer(512), 512)
    cluster = lib.rd_kafka_mock_cluster_new(handle, options.brokers)
    for topic in (b"orders", b"payments"):
        lib.rd_kafka_mock_topic_create(cluster, topic, 3, options.brokers)
    if options.rtt:
        lib.rd_kafka_mock_broker_set_rtt(cluster, 1, options.rtt)
    if options.errors:
        inject(lib, cluster, PRODUCE, [NOT_LEADER, REQUEST_TIMED_OUT, TRANSPORT, KAFKA_STORAGE])
        inject(lib, cluster, INIT_PRODUCER_ID, [COORDINATOR_LOADING])
        inject(lib, cluster, FETCH, [NOT_LEADER, KAFKA_STORAGE])
    print(confluent_kafka.libversion()[0], lib.rd_kafka_mock_cluster_bootstraps(cluster).decode())
    sys.stdout.flush()
    signal.sigwait([signal.SIGTERM, signal.SIGINT])


main()
