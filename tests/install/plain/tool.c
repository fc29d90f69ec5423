/* Bounded texts, and marks through the header alone. */
#include <securec.h>
#include <stdio.h>
#include <string.h>

#include "acl/acl.h"
#include "mstx/ms_tools_ext.h"

int main(void) {
  char text[8];
  uint64_t tool = 77;
  mstxRangeId range;
  mstxDomainHandle_t domain;
  if (strcpy_s(text, sizeof text, "seven") != EOK || strcat_s(text, sizeof text, "..") != EOK) return 1;
  if (strcat_s(text, sizeof text, "!") != ERANGE_AND_RESET || text[0] != '\0') return 2;
  if (sprintf_s(text, sizeof text, "%d", 12) != 2 || memset_s(text, sizeof text, 0, 9) != ERANGE_AND_RESET) return 3;
  mstxGetToolId(&tool);
  if (tool != MSTX_TOOL_MSPROF_ID) return 4;
  domain = mstxDomainCreateA("from_c");
  range = mstxDomainRangeStartA(domain, "work", NULL);
  if (domain == NULL || range == MSTX_INVALID_ID) return 5;
  mstxDomainMarkA(domain, "here", NULL);
  mstxDomainRangeEnd(domain, range);
  mstxDomainDestroy(domain);
  return aclInit(NULL) == ACL_SUCCESS && aclFinalize() == ACL_SUCCESS ? 0 : 6;
}
