/* The device's functions, called by Handlers.java. */
#include <jni.h>

#include "../c/unmapped_copy.h"

JNIEXPORT jint JNICALL Java_Handlers_registerPage(JNIEnv *env, jclass self)
{
    (void)env;
    (void)self;
    return register_page();
}

JNIEXPORT jint JNICALL Java_Handlers_copyFromUnmappedMemory(JNIEnv *env, jclass self)
{
    (void)env;
    (void)self;
    return copy_from_unmapped_memory();
}
