/* A simulated libnvidia-ml.so.1: the functions of NVML that nvidia-smi of 535 and 550 calls for -L, --query-gpu, -q -x,
 * nvlink -s, -pl, and without arguments. Every answer is a line of the file that NVML_DESCRIPTION names:
 *
 *     SCOPE KEY VALUE
 *
 * SCOPE is `node`, the index of a GPU, or GPU.PARTITION for a partition of MIG. KEY is the end of the name of the
 * function in NVML; a field of a structure has its name after a point, an argument its number. The value continues to
 * the end of the line; of several lines the last one counts, so that a setting is a line at the end. Without a line a function reports NVML_ERROR_NOT_SUPPORTED, as NVML does for what a GPU does not
 * have; there are no other defaults. `node Init CODE` lets every start fail, `GPU Handle CODE` the search for a GPU.
 *
 * Names, constants and layouts are those of NVIDIA's public nvml.h. One thing is not public: nvidia-smi gets the handle
 * of a GPU from a private table of functions. Its identifier and the position in it were found by recording the calls.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3 };
enum { NOT_FOUND = 6, SMALL_BUFFER = 7, TIMEOUT = 10 };
enum { MOST_GPUS = 64, MOST_PARTITIONS = 8, MOST_LINES = 16384 };

typedef struct { char scope[16], key[64], value[128]; } line;
typedef struct { char scope[16]; int index; } gpu; /* or a partition of one */

static line lines[MOST_LINES];
static int count;
static gpu gpus[MOST_GPUS], partitions[MOST_GPUS][MOST_PARTITIONS];

static int read_description(void)
{
    char text[256];
    const char *path = getenv("NVML_DESCRIPTION");
    FILE *file = path ? fopen(path, "r") : NULL;
    if (file == NULL)
        return UNINITIALIZED;
    for (count = 0; count < MOST_LINES && fgets(text, sizeof text, file); )
        count += sscanf(text, "%15s %63s %127[^\n]", lines[count].scope, lines[count].key, lines[count].value) == 3;
    fclose(file);
    for (int index = 0; index < MOST_GPUS; index++) {
        gpus[index].index = index;
        snprintf(gpus[index].scope, sizeof gpus[index].scope, "%d", index);
        for (int part = 0; part < MOST_PARTITIONS; part++) {
            partitions[index][part].index = part;
            snprintf(partitions[index][part].scope, sizeof partitions[index][part].scope, "%d.%d", index, part);
        }
    }
    return SUCCESS;
}

static const char *find_value(const char *scope, const char *key)
{
    for (int number = count - 1; number >= 0; number--)
        if (strcmp(lines[number].scope, scope) == 0 && strcmp(lines[number].key, key) == 0)
            return lines[number].value;
    return NULL;
}

static int read_text(const char *scope, const char *key, char *buffer, unsigned size)
{
    const char *value = find_value(scope, key);
    if (value == NULL)
        return NOT_SUPPORTED;
    if (strlen(value) >= size)
        return SMALL_BUFFER;
    strcpy(buffer, value);
    return SUCCESS;
}

static int read_large(const char *scope, const char *key, unsigned long long *number)
{
    const char *value = find_value(scope, key);
    if (value == NULL)
        return NOT_SUPPORTED;
    *number = strtoull(value, NULL, 0);
    return SUCCESS;
}

static int read_number(const char *scope, const char *key, unsigned *number)
{
    unsigned long long large = 0;
    int ended = read_large(scope, key, &large);
    if (ended == SUCCESS)
        *number = large;
    return ended;
}

/* A key with numbers, such as "MemoryErrorCounter.1.0.2"; negative numbers are left out. */
static const char *make_key(const char *name, int first, int second, int third)
{
    static char key[64];
    int length = snprintf(key, sizeof key, "%s.%d", name, first);
    if (second >= 0)
        length += snprintf(key + length, sizeof key - length, ".%d", second);
    if (third >= 0)
        snprintf(key + length, sizeof key - length, ".%d", third);
    return key;
}

/* ---- start, versions, GPUs */

int nvmlInitWithFlags(unsigned flags)
{
    unsigned failure = SUCCESS;
    int ended = read_description();
    (void)flags;
    if (ended == SUCCESS)
        read_number("node", "Init", &failure);
    return ended == SUCCESS ? (int)failure : ended;
}

int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return SUCCESS; }

/* The version of the loaded module, and without a module that of the description. */
int nvmlSystemGetDriverVersion(char *version, unsigned size)
{
    FILE *file = fopen("/sys/module/nvidia/version", "r");
    if (file == NULL)
        return read_text("node", "DriverVersion", version, size);
    int read = fgets(version, size, file) != NULL;
    fclose(file);
    if (!read)
        return UNINITIALIZED;
    version[strcspn(version, "\n")] = '\0';
    return SUCCESS;
}

int nvmlSystemGetNVMLVersion(char *version, unsigned size) { return read_text("node", "DriverVersion", version, size); }
int nvmlSystemGetCudaDriverVersion_v2(unsigned *version) { return read_number("node", "CudaDriverVersion", version); }
int nvmlDeviceGetCount_v2(unsigned *number) { return read_number("node", "Count", number); }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, gpu **found)
{
    unsigned number = 0, failure = SUCCESS;
    nvmlDeviceGetCount_v2(&number);
    if (index >= number || index >= MOST_GPUS)
        return INVALID_ARGUMENT;
    *found = &gpus[index];
    read_number(gpus[index].scope, "Handle", &failure);
    return failure;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *address, gpu **found)
{
    unsigned number = 0;
    nvmlDeviceGetCount_v2(&number);
    for (unsigned index = 0; index < number && index < MOST_GPUS; index++) {
        const char *value = find_value(gpus[index].scope, "PciInfo.busId");
        if (value && strcasecmp(value, address) == 0)
            return nvmlDeviceGetHandleByIndex_v2(index, found);
    }
    return NOT_FOUND;
}

int nvmlDeviceGetIndex(gpu *device, unsigned *index) { return *index = device->index, SUCCESS; }

/* ---- the private table: position 81 is the search for a GPU by its index; nothing else is supported */

static int report_unsupported(void) { return NOT_SUPPORTED; }

int nvmlInternalGetExportTable(const void **found, const unsigned char *identifier)
{
    static const unsigned char known[16] = {0xc4, 0xfe, 0x3e, 0x6c, 0xc9, 0x8f, 0x6c, 0x4e,
                                            0xa3, 0x27, 0xee, 0x69, 0x6e, 0x12, 0xf7, 0xc4};
    static void *table[512];
    if (memcmp(identifier, known, sizeof known) != 0)
        return NOT_FOUND;
    table[0] = (void *)sizeof table;
    for (unsigned position = 1; position < sizeof table / sizeof table[0]; position++)
        table[position] = (void *)report_unsupported;
    table[81] = (void *)nvmlDeviceGetHandleByIndex_v2;
    *found = table;
    return SUCCESS;
}

/* ---- texts and numbers of a GPU */

#define TEXT(key) \
    int nvmlDeviceGet##key(gpu *device, char *text, unsigned size) \
    { \
        return read_text(device->scope, #key, text, size); \
    }
#define NUMBER(key) \
    int nvmlDeviceGet##key(gpu *device, unsigned *number) { return read_number(device->scope, #key, number); }
#define PAIR(key, first, second) \
    int nvmlDeviceGet##key(gpu *device, unsigned *one, unsigned *other) \
    { \
        int ended = read_number(device->scope, #key "." first, one); \
        return ended ? ended : read_number(device->scope, #key "." second, other); \
    }
#define CHOICE(key) \
    int nvmlDeviceGet##key(gpu *device, unsigned choice, unsigned *number) \
    { \
        return read_number(device->scope, make_key(#key, choice, -1, -1), number); \
    }

TEXT(Name) TEXT(UUID) TEXT(Serial) TEXT(VbiosVersion) TEXT(BoardPartNumber) TEXT(InforomImageVersion)
TEXT(GspFirmwareVersion)
NUMBER(Brand) NUMBER(Architecture) NUMBER(MinorNumber) NUMBER(BoardId) NUMBER(MultiGpuBoard) NUMBER(ModuleId)
NUMBER(PersistenceMode) NUMBER(DisplayMode) NUMBER(DisplayActive) NUMBER(ComputeMode) NUMBER(PerformanceState)
NUMBER(PowerUsage) NUMBER(EnforcedPowerLimit) NUMBER(MaxMigDeviceCount) NUMBER(GpuInstanceId)
NUMBER(ComputeInstanceId) NUMBER(CurrPcieLinkGeneration) NUMBER(MaxPcieLinkGeneration)
NUMBER(GpuMaxPcieLinkGeneration) NUMBER(CurrPcieLinkWidth) NUMBER(MaxPcieLinkWidth) NUMBER(PcieReplayCounter)
NUMBER(RetiredPagesPendingStatus)
PAIR(MigMode, "current", "pending")
PAIR(EccMode, "current", "pending")
CHOICE(Temperature)
CHOICE(ClockInfo)
CHOICE(MaxClockInfo)

/* ---- settings of a GPU: a line at the end of the description, which the next program reads */

typedef struct { unsigned version; unsigned char scope; unsigned milliwatts; } power_limit;

int nvmlDeviceSetPowerManagementLimit_v2(gpu *device, power_limit *limit)
{
    enum { CURRENT = 190, REQUESTED = 192 }; /* field values */
    FILE *file = fopen(getenv("NVML_DESCRIPTION"), "a");
    if (file == NULL)
        return UNINITIALIZED;
    fprintf(file, "%s FieldValues.%d.%d %u\n", device->scope, CURRENT, limit->scope, limit->milliwatts);
    fprintf(file, "%s FieldValues.%d.%d %u\n", device->scope, REQUESTED, limit->scope, limit->milliwatts);
    fclose(file);
    return SUCCESS;
}

/* ---- structures of a GPU */

typedef struct {
    char short_address[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char address[32];
} pci_info;

typedef struct {
    unsigned version, domain, bus, device, device_id, subsystem_id, base_class, sub_class;
    char address[32];
} pci_info_ext;

int nvmlDeviceGetPciInfoExt(gpu *device, pci_info_ext *pci)
{
    int ended = read_text(device->scope, "PciInfo.busId", pci->address, sizeof pci->address);
    if (ended)
        return ended;
    if (sscanf(pci->address, "%x:%x:%x", &pci->domain, &pci->bus, &pci->device) != 3)
        return INVALID_ARGUMENT;
    read_number(device->scope, "PciInfo.pciDeviceId", &pci->device_id);
    read_number(device->scope, "PciInfo.pciSubSystemId", &pci->subsystem_id);
    read_number(device->scope, "PciInfo.baseClass", &pci->base_class);
    read_number(device->scope, "PciInfo.subClass", &pci->sub_class);
    return SUCCESS;
}

int nvmlDeviceGetPciInfo_v3(gpu *device, pci_info *pci)
{
    pci_info_ext found = {0};
    int ended = nvmlDeviceGetPciInfoExt(device, &found);
    pci->domain = found.domain, pci->bus = found.bus, pci->device = found.device;
    pci->device_id = found.device_id, pci->subsystem_id = found.subsystem_id;
    memcpy(pci->address, found.address, sizeof pci->address);
    snprintf(pci->short_address, sizeof pci->short_address, "%04x:%02x:%02x.0", found.domain & 0xffff, found.bus & 0xff,
             found.device & 0xff);
    return ended;
}

typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory_info;

int nvmlDeviceGetMemoryInfo_v2(gpu *device, memory_info *memory)
{
    int ended = read_large(device->scope, "MemoryInfo.total", &memory->total);
    memory->reserved = memory->used = 0;
    read_large(device->scope, "MemoryInfo.used", &memory->used);
    memory->free = memory->total - memory->used;
    return ended;
}

typedef struct { unsigned gpu, memory; } utilization;

int nvmlDeviceGetUtilizationRates(gpu *device, utilization *rates)
{
    int ended = read_number(device->scope, "UtilizationRates.gpu", &rates->gpu);
    return ended ? ended : read_number(device->scope, "UtilizationRates.memory", &rates->memory);
}

/* ---- partitions */

int nvmlDeviceGetMigDeviceHandleByIndex(gpu *device, unsigned index, gpu **found)
{
    if (index >= MOST_PARTITIONS || find_value(partitions[device->index][index].scope, "UUID") == NULL)
        return NOT_FOUND;
    *found = &partitions[device->index][index];
    return SUCCESS;
}

int nvmlDeviceIsMigDeviceHandle(gpu *device, unsigned *answer)
{
    return *answer = strchr(device->scope, '.') != NULL, SUCCESS;
}

/* ---- errors of the memory; ERROR is 0 for corrected and 1 for uncorrected, COUNTER 0 since the load and 1 for ever */

int nvmlDeviceGetTotalEccErrors(gpu *device, unsigned error, unsigned counter, unsigned long long *errors)
{
    return read_large(device->scope, make_key("TotalEccErrors", error, counter, -1), errors);
}

int nvmlDeviceGetMemoryErrorCounter(gpu *device, unsigned error, unsigned counter, unsigned location,
                                    unsigned long long *errors)
{
    return read_large(device->scope, make_key("MemoryErrorCounter", error, counter, location), errors);
}

typedef struct {
    unsigned version;
    unsigned long long parity, secded, corrected, volatile_parity, volatile_secded, volatile_corrected, buckets[5];
    unsigned exceeded;
} sram_errors;

int nvmlDeviceGetSramEccErrorStatus(gpu *device, sram_errors *errors)
{
    unsigned version = errors->version;
    memset(errors, 0, sizeof *errors);
    errors->version = version;
    read_large(device->scope, "SramEccErrorStatus.volatileUncParity", &errors->volatile_parity);
    return read_large(device->scope, "SramEccErrorStatus.volatileUncSecDed", &errors->volatile_secded);
}

int nvmlDeviceGetRemappedRows(gpu *device, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
                              unsigned *failure)
{
    int ended = read_number(device->scope, "RemappedRows.corrRows", corrected);
    ended = ended ? ended : read_number(device->scope, "RemappedRows.uncRows", uncorrected);
    ended = ended ? ended : read_number(device->scope, "RemappedRows.isPending", pending);
    return ended ? ended : read_number(device->scope, "RemappedRows.failureOccurred", failure);
}

/* ---- NVSwitch fabric and NVLink */

typedef struct { unsigned char cluster[16]; int status; unsigned clique; unsigned char state; } fabric_info;
typedef struct { unsigned version; fabric_info probe; unsigned health; } fabric_info_v2;

int nvmlDeviceGetGpuFabricInfo(gpu *device, fabric_info *fabric)
{
    unsigned state = 0, status = 0;
    int ended = read_number(device->scope, "GpuFabricInfo.state", &state);
    read_number(device->scope, "GpuFabricInfo.status", &status);
    memset(fabric, 0, sizeof *fabric);
    fabric->state = state;
    fabric->status = status;
    return ended;
}

int nvmlDeviceGetGpuFabricInfoV(gpu *device, fabric_info_v2 *fabric)
{
    fabric->health = 0;
    read_number(device->scope, "GpuFabricInfo.healthMask", &fabric->health);
    return nvmlDeviceGetGpuFabricInfo(device, &fabric->probe);
}

typedef struct {
    unsigned field, scope;
    long long timestamp, latency;
    unsigned type;
    int ended;
    union { unsigned number; unsigned long long large; } value;
} field_value;

/* Field 91 is the number of NVLinks; 164 and 165, with the link as scope, are speed (MB/s) and state of a link. */
int nvmlDeviceGetFieldValues(gpu *device, int number, field_value *values)
{
    enum { UNSIGNED_INT = 1 };
    for (field_value *value = values; value < values + number; value++) {
        value->type = UNSIGNED_INT;
        value->value.large = 0;
        value->ended = read_number(device->scope, make_key("FieldValues", value->field, value->scope, -1),
                                   &value->value.number);
    }
    return SUCCESS;
}

/* ---- events, which nvidia-smi registers for and which never happen */

int nvmlEventSetCreate(void **set)
{
    static int only;
    return *set = &only, SUCCESS;
}

int nvmlEventSetFree(void) { return SUCCESS; }
int nvmlEventSetWait_v2(void) { return TIMEOUT; }
int nvmlDeviceRegisterEvents(void) { return SUCCESS; }
int nvmlDeviceGetSupportedEventTypes(gpu *gpu, unsigned long long *kinds) { return (void)gpu, *kinds = 0, SUCCESS; }

/* ---- what no simulated GPU has; without these nvidia-smi would print "Function Not Found" instead of "N/A" */

#define UNSUPPORTED(key) int nvmlDevice##key(void) { return NOT_SUPPORTED; }

UNSUPPORTED(GetAccountingBufferSize) UNSUPPORTED(GetAccountingMode) UNSUPPORTED(GetAccountingPids)
UNSUPPORTED(GetApplicationsClock) UNSUPPORTED(GetAttributes_v2) UNSUPPORTED(GetAutoBoostedClocksEnabled)
UNSUPPORTED(GetBAR1MemoryInfo) UNSUPPORTED(GetBridgeChipInfo) UNSUPPORTED(GetC2cModeInfoV) UNSUPPORTED(GetClock)
UNSUPPORTED(GetConfComputeProtectedMemoryUsage) UNSUPPORTED(GetDecoderUtilization)
UNSUPPORTED(GetDefaultApplicationsClock) UNSUPPORTED(GetDriverModel) UNSUPPORTED(GetEncoderStats)
UNSUPPORTED(GetEncoderUtilization) UNSUPPORTED(GetFBCStats) UNSUPPORTED(GetFanSpeed) UNSUPPORTED(GetGpuOperationMode)
UNSUPPORTED(GetGridLicensableFeatures_v4) UNSUPPORTED(GetHostVgpuMode) UNSUPPORTED(GetInforomVersion)
UNSUPPORTED(GetJpgUtilization) UNSUPPORTED(GetLastBBXFlushTime) UNSUPPORTED(GetOfaUtilization)
UNSUPPORTED(GetPcieThroughput) UNSUPPORTED(GetPowerState) UNSUPPORTED(GetRetiredPages)
UNSUPPORTED(GetRowRemapperHistogram)
UNSUPPORTED(GetSupportedClocksThrottleReasons) UNSUPPORTED(GetSupportedMemoryClocks)
UNSUPPORTED(GetTemperatureThreshold) UNSUPPORTED(GetVgpuHeterogeneousMode) UNSUPPORTED(GetVirtualizationMode)
UNSUPPORTED(ValidateInforom)
